"""Make a tiny language model with random weights, for engines that run on a CPU.

A real engine needs real files: a configuration, weights and a tokenizer. This script makes them in seconds, from a
seed and from the Python standard library's own sources, so that nothing is downloaded. The model's text is noise; its
speed, its memory and its limits behave as those of a served model do.

It imports nothing of this project, so that the engine's own interpreter can run it by its path: it needs `torch`,
`transformers` and `tokenizers`, which the project does not depend on.
"""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

RECIPE_VERSION = 1
"""Raised when the same arguments begin to give other files."""
RECIPE_FILE = "frontier-recipe.json"
"""Written last into a finished model directory: what it was made from."""
SPECIAL_TOKENS = ("<unk>", "<s>", "</s>")
MIN_VOCABULARY = 256 + len(SPECIAL_TOKENS)
CORPUS_FILES = 120
"""How many sources of the standard library the tokenizer is trained on."""


@dataclass(frozen=True)
class Recipe:
    """All that the files of a model follow from.

    Attributes:
        seed: Of the random weights.
        experts: 0 for a dense Llama; otherwise a Mixtral with that many experts, two of them active for a token.
        hidden: Width of the residual stream.
        layers: Transformer layers.
        heads: Attention heads.
        kv_heads: Key and value heads.
        vocabulary: Tokens of the tokenizer and rows of the embedding.
        max_context: Longest prompt plus answer, in tokens.
        version: Of this script's way to make them.
    """

    seed: int = 1
    experts: int = 0
    hidden: int = 512
    layers: int = 8
    heads: int = 8
    kv_heads: int = 4
    vocabulary: int = 2048
    max_context: int = 4096
    version: int = RECIPE_VERSION

    def problems(self) -> list[str]:
        """Return what forbids making this model, one sentence each; empty where nothing does."""
        found = []
        if self.experts == 1 or self.experts < 0:
            found.append(f"experts is {self.experts}: use 0 for a dense model, or 2 and more")
        if self.heads < 1 or self.hidden % self.heads:
            found.append(f"hidden is {self.hidden} and heads is {self.heads}: hidden must be a multiple of heads")
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            found.append(f"heads is {self.heads} and kv-heads is {self.kv_heads}: heads must be a multiple of kv-heads")
        if self.vocabulary < MIN_VOCABULARY:
            found.append(
                f"vocabulary is {self.vocabulary}: use at least {MIN_VOCABULARY}, for every byte and special token"
            )
        return found


def is_made(directory: Path, recipe: Recipe) -> bool:
    """Return whether the directory holds the finished model of this recipe."""
    try:
        found = json.loads((directory / RECIPE_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(found == asdict(recipe))


def corpus() -> Iterator[str]:
    """Yield sources of the running interpreter's standard library, always in the same order."""
    library = Path(os.__file__).parent
    for path in sorted(library.glob("*.py"))[:CORPUS_FILES]:
        yield path.read_text(encoding="utf-8", errors="replace")


def make_tokenizer(recipe: Recipe) -> Any:
    """Return a byte-level BPE tokenizer trained on the standard library's sources."""
    tokenizers = import_module("tokenizers")
    byte_level = tokenizers.pre_tokenizers.ByteLevel
    unknown, begin, end = SPECIAL_TOKENS
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=unknown))
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=recipe.vocabulary,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=byte_level.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    wrapped = import_module("transformers").PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=unknown,
        bos_token=begin,
        eos_token=end,
        model_max_length=recipe.max_context,
    )
    wrapped.chat_template = (
        "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    return wrapped


def make_network(recipe: Recipe) -> Any:
    """Return the network with its random weights, in bfloat16."""
    torch, transformers = import_module("torch"), import_module("transformers")
    shape: dict[str, Any] = {
        "vocab_size": recipe.vocabulary,
        "hidden_size": recipe.hidden,
        "intermediate_size": recipe.hidden * 11 // 4,
        "num_hidden_layers": recipe.layers,
        "num_attention_heads": recipe.heads,
        "num_key_value_heads": recipe.kv_heads,
        "max_position_embeddings": recipe.max_context,
        "bos_token_id": SPECIAL_TOKENS.index("<s>"),
        "eos_token_id": SPECIAL_TOKENS.index("</s>"),
        "tie_word_embeddings": False,
    }
    torch.manual_seed(recipe.seed)
    if recipe.experts:
        mixtral = transformers.MixtralConfig(**shape, num_local_experts=recipe.experts, num_experts_per_tok=2)
        return transformers.MixtralForCausalLM(mixtral).to(torch.bfloat16)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape)).to(torch.bfloat16)


def make(directory: Path, recipe: Recipe) -> bool:
    """Make the model in the directory unless it is there already.

    The files appear all at once: they are written beside it and renamed.

    Returns:
        Whether anything was written.

    Raises:
        ValueError: The recipe contradicts itself.
        FileExistsError: The directory holds something else than a model of this script.
    """
    if problems := recipe.problems():
        raise ValueError("; ".join(problems))
    if is_made(directory, recipe):
        return False
    if directory.exists() and any(directory.iterdir()) and not (directory / RECIPE_FILE).exists():
        raise FileExistsError(
            f"output is {directory}, which is not empty and was not made by this script: name another directory"
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as scratch:
        made = Path(scratch) / "model"
        import_module("transformers").utils.logging.disable_progress_bar()
        make_network(recipe).save_pretrained(made)
        make_tokenizer(recipe).save_pretrained(made)
        (made / RECIPE_FILE).write_text(json.dumps(asdict(recipe), indent=2) + "\n", encoding="utf-8")
        for path in made.iterdir():
            path.chmod(0o644)  # the engine may run as another user than the one that made the files
        if directory.exists():
            shutil.rmtree(directory)
        made.rename(directory)
    return True


def digest(directory: Path) -> str:
    """Return the SHA-256 over the names and contents of the directory's files."""
    total = hashlib.sha256()
    for path in sorted(directory.iterdir()):
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the model that the command line asks for.

    Returns:
        0 once the model is there, 2 where the arguments forbid it.
    """
    parser = argparse.ArgumentParser(description="Make a tiny language model with random weights.")
    default = Recipe()
    parser.add_argument("--output", type=Path, required=True, help="directory to make")
    parser.add_argument("--seed", type=int, default=default.seed, help="of the weights (default %(default)s)")
    parser.add_argument(
        "--experts", type=int, default=default.experts, help="experts of a mixture; 0 for a dense model"
    )
    parser.add_argument("--hidden", type=int, default=default.hidden, help="width (default %(default)s)")
    parser.add_argument("--layers", type=int, default=default.layers, help="layers (default %(default)s)")
    parser.add_argument("--heads", type=int, default=default.heads, help="attention heads (default %(default)s)")
    parser.add_argument(
        "--kv-heads", type=int, default=default.kv_heads, help="key and value heads (default %(default)s)"
    )
    parser.add_argument("--vocabulary", type=int, default=default.vocabulary, help="tokens (default %(default)s)")
    parser.add_argument("--max-context", type=int, default=default.max_context, help="tokens (default %(default)s)")
    chosen = vars(parser.parse_args(arguments))
    output: Path = chosen.pop("output")
    try:
        written = make(output, Recipe(**chosen))
    except (ValueError, FileExistsError) as problem:
        parser.error(str(problem))
    sys.stdout.write(f"{'made' if written else 'kept'} {output} sha256 {digest(output)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The table of accelerators.

Operations are dense, without sparsity; a sheet that gives only sparse figures is halved. Links are per direction.
Memory is what the driver reports, in MiB. The network is that of the maker's reference system: one port of that speed
for each GPU, or a shared one for cards in an ordinary server, which no data sheet settles.
"""

from frontier_tuner.facts_types import GPUFacts

MIB = 1024**2
TERA = 1e12
GIGA = 1e9


def _gpu(  # noqa: PLR0917 - a row of a table
    product: str,
    mebibytes: int,
    terabytes_per_s: float,
    tera_16bit: float,
    tera_8bit: float,
    tera_4bit: float,
    tera_int8: float,
    gigabytes_link: float,
    domain: int,
    gigabytes_network: float,
    capability: float,
    source: str,
) -> GPUFacts:
    return GPUFacts(
        product=product,
        memory_bytes=mebibytes * MIB,
        bandwidth_bytes_per_s=terabytes_per_s * TERA,
        flops_16bit=tera_16bit * TERA,
        flops_8bit=(tera_8bit or tera_16bit) * TERA,
        link_bytes_per_s=gigabytes_link * GIGA,
        compute_capability=capability,
        flops_4bit=tera_4bit * TERA,
        flops_int8=tera_int8 * TERA,
        domain_gpus=domain,
        network_bytes_per_s=gigabytes_network * GIGA,
        source=source,
    )


_V100 = "NVIDIA V100 data sheet, January 2020"
_A100 = "NVIDIA A100 data sheet, June 2021"
_H100 = "NVIDIA H100 data sheet, 2024"
_H200 = "NVIDIA H200 data sheet, 2024"
_GH200 = "NVIDIA GH200 Grace Hopper data sheet, 2024"
_BLACKWELL = "NVIDIA Blackwell data sheet 3384703, 2024"
_ULTRA = "NVIDIA Blackwell Ultra data sheet, 2025"
_RTX = "NVIDIA RTX PRO 6000 Blackwell Server Edition data sheet, 2025"

# Product, MiB, TB/s, operations in 16, 8, 4 bits and int8 (T/s), link GB/s, domain, network GB/s, capability, source.
_ROWS = (
    _gpu("Tesla-V100-SXM2-16GB", 16160, 0.9, 125, 0, 0, 0, 150, 8, 12.5, 7.0, _V100),
    _gpu("Tesla-V100-SXM2-32GB", 32510, 0.9, 125, 0, 0, 0, 150, 8, 12.5, 7.0, _V100),
    _gpu("Tesla-V100-PCIE-16GB", 16160, 0.9, 112, 0, 0, 0, 16, 8, 6.25, 7.0, _V100),
    _gpu("Tesla-T4", 15360, 0.32, 65, 0, 0, 130, 16, 8, 3.1, 7.5, "NVIDIA T4 data sheet, 2019"),
    _gpu("NVIDIA-A10", 23028, 0.6, 125, 0, 0, 250, 32, 8, 6.25, 8.6, "NVIDIA A10 data sheet, 2021"),
    _gpu("NVIDIA-A10G", 23028, 0.6, 70, 0, 0, 140, 32, 8, 6.25, 8.6, "NVIDIA A10G product brief, 2021"),
    _gpu("NVIDIA-A30", 24576, 0.933, 165, 0, 0, 330, 32, 8, 6.25, 8.0, "NVIDIA A30 data sheet, 2022"),
    _gpu("NVIDIA-L4", 23034, 0.3, 121, 242, 0, 242, 32, 8, 6.25, 8.9, "NVIDIA L4 data sheet, 2023"),
    _gpu("NVIDIA-L40S", 46068, 0.864, 362, 733, 0, 733, 32, 8, 12.5, 8.9, "NVIDIA L40S data sheet, 2024"),
    _gpu("NVIDIA-A100-SXM4-80GB", 81920, 2.039, 312, 0, 0, 624, 300, 8, 25, 8.0, _A100),
    _gpu("NVIDIA-A100-SXM4-40GB", 40960, 1.555, 312, 0, 0, 624, 300, 8, 25, 8.0, _A100),
    _gpu("NVIDIA-A100-80GB-PCIe", 81920, 1.935, 312, 0, 0, 624, 32, 8, 12.5, 8.0, _A100),
    _gpu("NVIDIA-A100-PCIE-40GB", 40960, 1.555, 312, 0, 0, 624, 32, 8, 12.5, 8.0, _A100),
    _gpu("NVIDIA-H100-80GB-HBM3", 81559, 3.35, 989, 1979, 0, 1979, 450, 8, 50, 9.0, _H100),
    _gpu("NVIDIA-H100-PCIe", 81559, 2.0, 756, 1513, 0, 1513, 64, 8, 25, 9.0, _H100),
    _gpu("NVIDIA-H100-NVL", 95830, 3.938, 835, 1671, 0, 1671, 300, 2, 25, 9.0, _H100),
    _gpu("NVIDIA-H200", 143771, 4.8, 989, 1979, 0, 1979, 450, 8, 50, 9.0, _H200),
    _gpu("NVIDIA-H200-NVL", 143771, 4.8, 835, 1671, 0, 1671, 450, 4, 25, 9.0, _H200),
    _gpu("NVIDIA-GH200-480GB", 97871, 4.0, 990, 1979, 0, 1979, 450, 1, 50, 9.0, _GH200),
    _gpu("NVIDIA-GH200-144G-HBM3e", 147456, 4.9, 990, 1979, 0, 1979, 450, 1, 50, 9.0, _GH200),
    _gpu("NVIDIA-B200", 183359, 8.0, 2250, 4500, 9000, 4500, 900, 8, 50, 10.0, _BLACKWELL),
    _gpu("NVIDIA-B300", 275040, 7.75, 2250, 4500, 14000, 153.5, 900, 8, 100, 10.3, _ULTRA),
    _gpu("NVIDIA-GB200", 189471, 8.0, 2500, 5000, 10000, 5000, 900, 72, 50, 10.0, _BLACKWELL),
    _gpu("NVIDIA-GB300", 284208, 8.0, 2500, 5000, 15000, 165, 900, 72, 100, 10.3, _ULTRA),
    _gpu("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", 97887, 1.597, 468, 936, 1871, 936, 64, 8, 25, 12.0, _RTX),
    _gpu("AMD-Instinct-MI300X", 196592, 5.3, 1307, 2615, 0, 2615, 448, 8, 50, 9.4, "AMD MI300X data sheet, 2023"),
    _gpu("AMD-Instinct-MI325X", 262128, 6.0, 1307, 2615, 0, 2615, 448, 8, 50, 9.4, "AMD MI325X data sheet, 2024"),
    _gpu("AMD-Instinct-MI355X", 294896, 8.0, 2517, 5033, 10066, 5033, 537, 8, 50, 9.5, "AMD MI355X data sheet, 2025"),
)  # fmt: skip

GPUS: dict[str, GPUFacts] = {facts.product: facts for facts in _ROWS}
"""Known accelerators by product."""

GPU_ALIASES: dict[str, str] = {
    "v100": "Tesla-V100-SXM2-16GB",
    "v100-16gb": "Tesla-V100-SXM2-16GB",
    "v100-32gb": "Tesla-V100-SXM2-32GB",
    "t4": "Tesla-T4",
    "nvidia-tesla-t4": "Tesla-T4",
    "a100": "NVIDIA-A100-SXM4-80GB",
    "a100-80gb": "NVIDIA-A100-SXM4-80GB",
    "a100-sxm": "NVIDIA-A100-SXM4-80GB",
    "a100-40gb": "NVIDIA-A100-SXM4-40GB",
    "a100-pcie": "NVIDIA-A100-80GB-PCIe",
    "h100": "NVIDIA-H100-80GB-HBM3",
    "h100-sxm": "NVIDIA-H100-80GB-HBM3",
    "nvidia-h100-80gb-hbm2e": "NVIDIA-H100-PCIe",
    "h200-sxm": "NVIDIA-H200",
    "gh200": "NVIDIA-GH200-480GB",
    "b200-sxm": "NVIDIA-B200",
    "b300-sxm": "NVIDIA-B300",
    "nvidia-b300-sxm6-ac": "NVIDIA-B300",
    "rtx-pro-6000": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    "rtx-pro-6000-server": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
    "mi300x": "AMD-Instinct-MI300X",
    "mi325x": "AMD-Instinct-MI325X",
    "mi355x": "AMD-Instinct-MI355X",
    "amd-instinct-mi300x-oam": "AMD-Instinct-MI300X",
    "amd-instinct-mi325x-oam": "AMD-Instinct-MI325X",
    "amd-instinct-mi355x-oam": "AMD-Instinct-MI355X",
}
"""Short names, in lower case with hyphens."""

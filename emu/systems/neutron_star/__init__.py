"""NeutronStar (Wang et al., SIGMOD 2022): rows are fetched, or computed again."""

from emu.systems.exchange_system import exchange_system

NEUTRON_STAR = exchange_system(
    "neutron_star",
    "emu.systems.neutron_star.section:NeutronStarSection",
    knobs={"dependencies": ("cost", "communicated", "cached")},
)

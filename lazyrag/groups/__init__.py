"""Node groups: their definitions, and what decides that one is built again."""

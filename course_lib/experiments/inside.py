"""The claims of lesson 11: what single heads find, and which layers serve as features."""

"""The claims of lesson 20: parameter-efficient fine-tuning against fine-tuning everything."""

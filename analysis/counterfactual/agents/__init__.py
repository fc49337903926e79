"""Who acts in a run: the protocol, and simulated agents; trainable and live ones stand beside them."""

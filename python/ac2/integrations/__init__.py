"""Other libraries' switches for checkpointing, turned to ac2. Each module needs the library that it is named after."""

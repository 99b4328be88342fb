"""TouchDatasets: pairs of `.bin` and `.idx` files, their folders and checksums."""

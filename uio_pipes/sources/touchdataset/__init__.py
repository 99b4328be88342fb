"""TouchDatasets: folders of pairs of `.bin` and `.idx` files."""

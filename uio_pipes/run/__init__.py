"""Running a graph: the loader, its lanes and workers, states, the ends of epochs."""

"""The parts that stages are made of: utterances, lanes, nodes, counts, and the graph that describes them."""

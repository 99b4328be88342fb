"""Audio kernels: pure functions of a waveform and their parameters, independent of any pipeline."""

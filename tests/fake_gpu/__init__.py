"""GPUs for tests on a machine without one: torch's own CUDA build, over host memory.

A CUDA runtime, NCCL and NVML of this package's own (`c/`) are put before the real ones, and torch's
CUDA kernels are replaced by the CPU's on the same memory (`kernels`). All of torch between the two
is the real thing. `docs/fake-gpu.md` says what that shows and what it can't.

* `requirements`: whether it works here, and why not;
* `libraries`: compiles what is written in C;
* `environment`: what a program needs in its environment to find such GPUs;
* `kernels`: what each process does once torch is imported;
* `python -m fake_gpu -- COMMAND` runs a whole program on them.
"""

// What the files of the fake CUDA runtime share.
#pragma once
#include <cuda_runtime_api.h>

#define API __attribute__((visibility("default"))) cudaError_t
#define OK return cudaSuccess
// Returns from a function of the runtime that can't be used in this process: see `fake_state`.
#define NEEDS_DEVICE                                  \
  do {                                                \
    cudaError_t state_ = fake_state();                \
    if (state_ != cudaSuccess) return fake_fail(state_); \
  } while (0)

// The current device of the calling thread.
int fake_current_device(void);
// Its number on the machine.
int fake_machine_device(void);
// Whether the runtime works here. It does not in a process that was forked after it had been
// initialised, as with the real driver; nor after an assertion failed in a kernel, when every
// further call says so.
cudaError_t fake_state(void);
// Counts the memory of a communicator on the current device, as it opens or as it ends.
void fake_count_communicator(int is_open);
// Notes an error for cudaGetLastError, and returns it.
cudaError_t fake_fail(cudaError_t error);

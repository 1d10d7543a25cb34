// Streams, and the work on them that runs beside the host.
//
// Kernels and copies run at once, in the thread that asks for them, as soon as what their stream
// holds by then has run. Only NCCL's operations are asynchronous: a thread a communicator runs
// them, each in the order of its stream. So a collective whose peer never comes leaves the host
// free until it needs the result, and then holds it, as on a GPU.
#pragma once
#include <cuda_runtime_api.h>
#include <pthread.h>

// Operations are numbered by stream: `submitted` so far, of which `done` have run.
struct stream {
  long submitted, done;
};

extern pthread_mutex_t fake_work;  // guards every stream's numbers, and NCCL's queues
extern pthread_cond_t fake_moved;  // some operation was submitted, or has run
extern int fake_pending;           // operations that have not run, for a look in passing

// The stream of a handle; the null stream is the current device's.
struct stream *fake_stream(cudaStream_t handle);
// Waits until all that a stream holds by now has run.
void fake_drain(cudaStream_t handle);
// Waits until every operation has run.
void fake_drain_all(void);

// A communicator of the fake NCCL: ranks of one host that meet in shared memory.
//
// An operation is a stream's, not the caller's: `fake_submit` puts it into the communicator's queue,
// and a thread of the communicator runs it once all that its stream held before has run. Who
// needs its result waits for the stream. A peer that never comes keeps it waiting until the
// communicator is aborted, by this rank itself: peers learn nothing of it, as with NCCL.
#pragma once
#include <nccl.h>
#include <stddef.h>

#include "streams.h"

// Bytes that each rank can show the others at a time.
#define CHUNK ((size_t)1 << 18)

// What one rank sends to another.
struct box {
  _Atomic int is_full;
  char data[CHUNK];
};

// At the beginning of the shared memory; a slot a rank follows, then a box a pair.
struct meeting {
  _Atomic int arrived, round;
  char padding[4088];
};

struct transfer {
  char *at;
  size_t left; // bytes
  int peer, sends;
};

struct operation {
  ncclResult_t (*run)(struct operation *);
  const char *in;
  char *out;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int root;
  ncclComm_t comm;
  struct transfer *transfers; // of sends and receives, freed with it
  int num_transfers;
  struct stream *stream;
  long turn; // its number on the stream
  struct operation *next;
};

struct ncclComm {
  int rank, size, has_thread;
  _Atomic int is_aborted;
  struct meeting *meeting;
  char *slots;
  struct box *boxes; // from rank a to rank b: a * size + b
  struct operation *first;
};

// Waits for every rank of the communicator to come here.
ncclResult_t fake_meet(ncclComm_t comm);
// Queues a copy of an operation on a stream.
ncclResult_t fake_submit(struct operation operation, cudaStream_t stream);
// Waits until the queue is empty.
void fake_finish(ncclComm_t comm);
// Runs an all-gather at once.
ncclResult_t fake_all_gather(struct operation *operation);

#define TRY(call)                        \
  do {                                   \
    ncclResult_t result_ = (call);       \
    if (result_ != ncclSuccess) return result_; \
  } while (0)

// The fake NCCL's operations: what each does once it is its turn. See communicator.h.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "communicator.h"
#include "nccl_arithmetic.h"

#define API __attribute__((visibility("default"))) ncclResult_t
#define LOOK_AGAIN_US 20
#define MOST_QUEUED 256

// Every rank shows `bytes` of `mine` in its slot; then `use` runs; then all go on.
#define ROUND(mine, bytes, use)                                  \
  do {                                                           \
    memcpy(comm->slots + comm->rank * CHUNK, mine, bytes);       \
    TRY(fake_meet(comm));                                        \
    use;                                                         \
    TRY(fake_meet(comm));                                        \
  } while (0)

static size_t least(size_t one, size_t other) { return one < other ? one : other; }

// Reduces onto `root`, or onto all where that is negative.
static ncclResult_t reduce(struct operation *o) {
  ncclComm_t comm = o->comm;
  size_t size = fake_size_of(o->type), most = CHUNK / size;
  for (size_t at = 0; at < o->count; at += most) {
    size_t n = least(most, o->count - at);
    ROUND(o->in + at * size, n * size,
          if (o->root < 0 || o->root == comm->rank)
            fake_reduce(o->out + at * size, comm->slots, comm->size, CHUNK, n, o->type, o->op));
  }
  return ncclSuccess;
}

static ncclResult_t reduce_scatter(struct operation *o) {
  ncclComm_t comm = o->comm;
  size_t size = fake_size_of(o->type), most = CHUNK / size, bytes = o->count * size;
  char *copy = malloc(bytes * comm->size); // the output may lie within the input
  memcpy(copy, o->in, bytes * comm->size);
  for (int rank = 0; rank < comm->size; rank++) {
    for (size_t at = 0; at < o->count; at += most) {
      size_t n = least(most, o->count - at);
      ROUND(copy + rank * bytes + at * size, n * size,
            if (rank == comm->rank)
              fake_reduce(o->out + at * size, comm->slots, comm->size, CHUNK, n, o->type, o->op));
    }
  }
  free(copy);
  return ncclSuccess;
}

ncclResult_t fake_all_gather(struct operation *o) {
  ncclComm_t comm = o->comm;
  size_t bytes = o->count * fake_size_of(o->type);
  for (size_t at = 0; at < bytes; at += CHUNK) {
    size_t n = least(CHUNK, bytes - at);
    ROUND(o->in + at, n,
          for (int rank = 0; rank < comm->size; rank++)
            memmove(o->out + rank * bytes + at, comm->slots + rank * CHUNK, n));
  }
  return ncclSuccess;
}

static ncclResult_t broadcast(struct operation *o) {
  ncclComm_t comm = o->comm;
  size_t bytes = o->count * fake_size_of(o->type);
  int is_root = comm->rank == o->root;
  for (size_t at = 0; at < bytes; at += CHUNK) {
    size_t n = least(CHUNK, bytes - at);
    ROUND((is_root ? o->in : o->out) + at, is_root ? n : 0,
          memmove(o->out + at, comm->slots + o->root * CHUNK, n));
  }
  return ncclSuccess;
}

// Moves what can be moved of one transfer now; whether that was anything.
static int move(ncclComm_t comm, struct transfer *transfer) {
  int from = transfer->sends ? comm->rank : transfer->peer;
  int to = transfer->sends ? transfer->peer : comm->rank;
  struct box *box = comm->boxes + from * comm->size + to;
  if (transfer->sends == box->is_full) return 0;
  size_t n = least(CHUNK, transfer->left);
  if (transfer->sends) memcpy(box->data, transfer->at, n);
  else memcpy(transfer->at, box->data, n);
  box->is_full = transfer->sends;
  transfer->at += n;
  transfer->left -= n;
  return 1;
}

// Sends and receives of one group, side by side; those between the same two in their order.
static ncclResult_t exchange(struct operation *o) {
  ncclComm_t comm = o->comm;
  for (int num_left = o->num_transfers; num_left;) {
    int has_moved = 0;
    num_left = 0;
    for (int i = 0; i < o->num_transfers; i++) {
      struct transfer *transfer = o->transfers + i;
      if (!transfer->left) continue;
      num_left++;
      if (comm->is_aborted) return ncclSystemError;
      int waits = 0;
      for (int j = 0; j < i; j++) {
        struct transfer *earlier = o->transfers + j;
        waits |= earlier->left && earlier->peer == transfer->peer &&
                 earlier->sends == transfer->sends;
      }
      if (!waits) has_moved |= move(comm, transfer);
    }
    if (num_left && !has_moved) usleep(LOOK_AGAIN_US);
  }
  return ncclSuccess;
}

API ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                  ncclComm_t comm, cudaStream_t stream) {
  return fake_submit((struct operation){reduce, in, out, n, type, op, -1, comm}, stream);
}
API ncclReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
               ncclComm_t comm, cudaStream_t stream) {
  return fake_submit((struct operation){reduce, in, out, n, type, op, root, comm}, stream);
}
API ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op,
                      ncclComm_t comm, cudaStream_t stream) {
  return fake_submit((struct operation){reduce_scatter, in, out, n, type, op, 0, comm}, stream);
}
API ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t comm,
                  cudaStream_t stream) {
  return fake_submit((struct operation){fake_all_gather, in, out, n, type, 0, 0, comm}, stream);
}
API ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root,
                  ncclComm_t comm, cudaStream_t stream) {
  return fake_submit((struct operation){broadcast, in, out, n, type, 0, root, comm}, stream);
}
API ncclBcast(void *at, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
              cudaStream_t stream) {
  return ncclBroadcast(at, at, n, type, root, comm, stream);
}

// Sends and receives of a group that is still open.
static _Thread_local struct {
  struct transfer transfer;
  ncclComm_t comm;
  cudaStream_t stream;
} queue[MOST_QUEUED];
static _Thread_local int depth, num_queued;

// One operation for each communicator.
static ncclResult_t flush(void) {
  for (int i = 0; i < num_queued; i++) {
    ncclComm_t comm = queue[i].comm;
    if (!comm) continue;
    struct operation o = {.run = exchange, .comm = comm};
    o.transfers = malloc(sizeof(struct transfer) * num_queued);
    for (int j = i; j < num_queued; j++) {
      if (queue[j].comm != comm) continue;
      o.transfers[o.num_transfers++] = queue[j].transfer;
      queue[j].comm = NULL;
    }
    TRY(fake_submit(o, queue[i].stream));
  }
  num_queued = 0;
  return ncclSuccess;
}

static ncclResult_t add(struct transfer transfer, ncclComm_t comm, cudaStream_t stream) {
  if (num_queued == MOST_QUEUED) return ncclInvalidUsage;
  queue[num_queued].transfer = transfer;
  queue[num_queued].comm = comm;
  queue[num_queued++].stream = stream;
  return depth ? ncclSuccess : flush();
}

API ncclSend(const void *at, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream) {
  struct transfer transfer = {(char *)at, n * fake_size_of(type), peer, 1};
  return add(transfer, comm, stream);
}
API ncclRecv(void *at, size_t n, ncclDataType_t type, int peer, ncclComm_t comm,
             cudaStream_t stream) {
  return add((struct transfer){at, n * fake_size_of(type), peer, 0}, comm, stream);
}
API ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}
API ncclGroupEnd(void) { return --depth ? ncclSuccess : flush(); }

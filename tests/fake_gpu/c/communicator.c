// Communicators of the fake NCCL: how they are made, meet, work and end. See communicator.h.
#define _GNU_SOURCE
#include "communicator.h"
#include "runtime.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define API __attribute__((visibility("default"))) ncclResult_t
#define LOOK_AGAIN_US 20

ncclResult_t fake_meet(ncclComm_t comm) {
  struct meeting *meeting = comm->meeting;
  int round = meeting->round;
  if (atomic_fetch_add(&meeting->arrived, 1) == comm->size - 1) {
    meeting->arrived = 0;
    meeting->round++;
    return ncclSuccess;
  }
  while (meeting->round == round) {
    if (comm->is_aborted) return ncclSystemError;
    usleep(LOOK_AGAIN_US);
  }
  return ncclSuccess;
}

static void *work(void *of) {
  ncclComm_t comm = of;
  pthread_mutex_lock(&fake_work);
  for (;;) {
    while (!comm->first || comm->first->stream->done < comm->first->turn) {
      pthread_cond_wait(&fake_moved, &fake_work);
    }
    struct operation *operation = comm->first;
    pthread_mutex_unlock(&fake_work);
    if (!comm->is_aborted) operation->run(operation);
    pthread_mutex_lock(&fake_work);
    comm->first = operation->next;
    operation->stream->done++;
    fake_pending--;
    free(operation->transfers);
    free(operation);
    pthread_cond_broadcast(&fake_moved);
  }
  return NULL;
}

static void start_thread(ncclComm_t comm) {
  // Signals are for the threads of the program.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  pthread_create(&thread, NULL, work, comm);
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  comm->has_thread = 1;
}

ncclResult_t fake_submit(struct operation given, cudaStream_t stream) {
  ncclComm_t comm = given.comm;
  struct operation *operation = malloc(sizeof *operation);
  *operation = given;
  operation->stream = fake_stream(stream);
  operation->next = NULL;
  pthread_mutex_lock(&fake_work);
  operation->turn = operation->stream->submitted++;
  fake_pending++;
  struct operation **end = &comm->first;
  while (*end) end = &(*end)->next;
  *end = operation;
  if (!comm->has_thread) start_thread(comm);
  pthread_cond_broadcast(&fake_moved);
  pthread_mutex_unlock(&fake_work);
  return ncclSuccess;
}

void fake_finish(ncclComm_t comm) {
  pthread_mutex_lock(&fake_work);
  while (comm->first) pthread_cond_wait(&fake_moved, &fake_work);
  pthread_mutex_unlock(&fake_work);
}

API ncclGetUniqueId(ncclUniqueId *id) {
  static _Atomic int number;
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "/fakenccl-%d-%d", getpid(), number++);
  return ncclSuccess;
}
// Whether NCCL is to fail on this rank, as where /dev/shm is too small for its buffers.
static int must_fail(int rank) {
  const char *text = getenv("FAKE_GPU_NCCL_FAILS");
  return text && atoi(text) == rank;
}
// Whether two ranks are on one device, which NCCL refuses. All ranks ask.
static ncclResult_t look_for_twins(ncclComm_t comm) {
  int own = fake_machine_device();
  memcpy(comm->slots + comm->rank * CHUNK, &own, sizeof own);
  TRY(fake_meet(comm));
  int twins = 0;
  for (int other = 0; other < comm->size; other++) {
    int device;
    memcpy(&device, comm->slots + other * CHUNK, sizeof device);
    twins |= other != comm->rank && device == own;
  }
  TRY(fake_meet(comm));
  return twins ? ncclInvalidUsage : ncclSuccess;
}
API ncclCommInitRankConfig(ncclComm_t *out, int size, ncclUniqueId id, int rank,
                           ncclConfig_t *config) {
  if (must_fail(rank)) return ncclSystemError;
  size_t bytes = sizeof(struct meeting) + size * CHUNK + (size_t)size * size * sizeof(struct box);
  int file = shm_open(id.internal, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, bytes)) return ncclSystemError;
  ncclComm_t comm = calloc(1, sizeof *comm);
  comm->rank = rank;
  comm->size = size;
  comm->meeting = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (comm->meeting == MAP_FAILED) return ncclSystemError;
  comm->slots = (char *)(comm->meeting + 1);
  comm->boxes = (struct box *)(comm->slots + size * CHUNK);
  *out = comm;
  fake_count_communicator(1);
  TRY(fake_meet(comm));
  if (rank == 0) shm_unlink(id.internal); // all have it open
  return look_for_twins(comm);
}
API ncclCommInitRank(ncclComm_t *out, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, size, id, rank, NULL);
}
API ncclCommInitRankScalable(ncclComm_t *out, int size, int rank, int num_ids, ncclUniqueId *ids,
                             ncclConfig_t *config) {
  return ncclCommInitRankConfig(out, size, ids[0], rank, config);
}
// The members of a colour meet where the process of their first says.
API ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  int own[2] = {color, getpid()}, all[2 * 64];
  if (comm->size > 64) return ncclInvalidArgument;
  fake_finish(comm);
  struct operation gather = {
      .in = (char *)own, .out = (char *)all, .count = 2, .type = ncclInt32, .comm = comm};
  TRY(fake_all_gather(&gather));
  int size = 0, rank = -1, first = -1;
  for (int other = 0; other < comm->size; other++) {
    if (all[2 * other] != color) continue;
    if (other == comm->rank) rank = size;
    if (first < 0) first = all[2 * other + 1];
    size++;
  }
  *out = NULL;
  if (color < 0) return ncclSuccess;
  ncclUniqueId id;
  memset(&id, 0, sizeof id);
  int round = comm->meeting->round;
  snprintf(id.internal, sizeof id.internal, "/fakenccl-split-%d-%d-%d", first, color, round);
  return ncclCommInitRankConfig(out, size, id, rank, config);
}
API ncclCommFinalize(ncclComm_t comm) { return ncclSuccess; }
API ncclCommDestroy(ncclComm_t comm) {
  fake_count_communicator(0);
  fake_finish(comm);
  return ncclSuccess;
}
API ncclCommAbort(ncclComm_t comm) {
  fake_count_communicator(0);
  comm->is_aborted = 1;
  fake_finish(comm);
  return ncclSuccess;
}
API ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
  *error = ncclSuccess;
  return ncclSuccess;
}
API ncclCommCount(const ncclComm_t comm, int *count) {
  *count = comm->size;
  return ncclSuccess;
}
API ncclCommUserRank(const ncclComm_t comm, int *rank) {
  *rank = comm->rank;
  return ncclSuccess;
}
API ncclCommRegister(const ncclComm_t comm, void *at, size_t size, void **handle) {
  *handle = NULL;
  return ncclSuccess;
}
API ncclCommDeregister(const ncclComm_t comm, void *handle) { return ncclSuccess; }
API ncclMemAlloc(void **at, size_t size) { return ncclInvalidUsage; }
API ncclMemFree(void *at) { return ncclInvalidUsage; }
API ncclGetVersion(int *version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t result) {
  return result ? "an error of the fake NCCL" : "no error";
}
const char *ncclGetLastError(ncclComm_t comm) { return ""; }

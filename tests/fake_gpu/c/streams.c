// Streams and events of the fake CUDA runtime; see streams.h.
#define _GNU_SOURCE
#include "streams.h"

#include <stdlib.h>
#include <time.h>

#include "devices.h"
#include "runtime.h"

struct event {
  struct timespec at;
  struct stream *of;
  long upto;
};

pthread_mutex_t fake_work = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t fake_moved = PTHREAD_COND_INITIALIZER;
int fake_pending;
static struct stream null_streams[FAKE_MOST_DEVICES];

struct stream *fake_stream(cudaStream_t handle) {
  // 0 to 2 are the null stream in its three spellings.
  return (size_t)handle > 2 ? (struct stream *)handle : &null_streams[fake_current_device()];
}

static int has_reached(struct stream *stream, long upto) {
  pthread_mutex_lock(&fake_work);
  int has = stream->done >= upto;
  pthread_mutex_unlock(&fake_work);
  return has;
}

static void wait_for(struct stream *stream, long upto) {
  pthread_mutex_lock(&fake_work);
  while (stream->done < upto) pthread_cond_wait(&fake_moved, &fake_work);
  pthread_mutex_unlock(&fake_work);
}

__attribute__((visibility("default"))) void fake_drain(cudaStream_t handle) {
  struct stream *stream = fake_stream(handle);
  if (fake_pending) wait_for(stream, stream->submitted);
}

void fake_drain_all(void) {
  pthread_mutex_lock(&fake_work);
  while (fake_pending) pthread_cond_wait(&fake_moved, &fake_work);
  pthread_mutex_unlock(&fake_work);
}

API cudaStreamCreate(cudaStream_t *stream) {
  *stream = calloc(1, sizeof(struct stream));
  OK;
}
API cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
  return cudaStreamCreate(stream);
}
API cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
  return cudaStreamCreate(stream);
}
API cudaStreamDestroy(cudaStream_t stream) { OK; } // events may still name it
API cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  *priority = 0;
  OK;
}
API cudaStreamQuery(cudaStream_t handle) {
  NEEDS_DEVICE;
  struct stream *stream = fake_stream(handle);
  return has_reached(stream, stream->submitted) ? cudaSuccess : cudaErrorNotReady;
}
API cudaStreamSynchronize(cudaStream_t stream) {
  fake_drain(stream);
  NEEDS_DEVICE;
  OK;
}
// Whatever comes after it on the stream is run by the host, so the host waits.
API cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return cudaEventSynchronize(event);
}
API cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  *status = cudaStreamCaptureStatusNone;
  OK;
}
API cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                             unsigned long long *id, cudaGraph_t *graph,
                             const cudaGraphNode_t **dependencies, const cudaGraphEdgeData **edges,
                             size_t *count) {
  *status = cudaStreamCaptureStatusNone;
  OK;
}
API cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) { OK; }
API cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  fake_drain(stream);
  function(data);
  OK;
}
API cudaDeviceSynchronize(void) {
  fake_drain_all();
  NEEDS_DEVICE;
  OK;
}

API cudaEventCreate(cudaEvent_t *event) {
  *event = calloc(1, sizeof(struct event));
  OK;
}
API cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return cudaEventCreate(event); }
API cudaEventDestroy(cudaEvent_t event) {
  free(event);
  OK;
}
API cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
  struct event *event = (struct event *)handle;
  clock_gettime(CLOCK_MONOTONIC, &event->at);
  pthread_mutex_lock(&fake_work);
  event->of = fake_stream(stream);
  event->upto = event->of->submitted;
  pthread_mutex_unlock(&fake_work);
  OK;
}
API cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}
API cudaEventQuery(cudaEvent_t handle) {
  NEEDS_DEVICE;
  struct event *event = (struct event *)handle;
  return !event->of || has_reached(event->of, event->upto) ? cudaSuccess : cudaErrorNotReady;
}
API cudaEventSynchronize(cudaEvent_t handle) {
  struct event *event = (struct event *)handle;
  if (event->of) wait_for(event->of, event->upto);
  NEEDS_DEVICE;
  OK;
}
API cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to) {
  struct timespec *start = &((struct event *)from)->at, *end = &((struct event *)to)->at;
  *milliseconds = (end->tv_sec - start->tv_sec) * 1e3 + (end->tv_nsec - start->tv_nsec) / 1e6;
  OK;
}

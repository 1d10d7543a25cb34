// A CUDA runtime over host memory: devices, allocation and copies work, kernels don't.
//
// Preloaded before libcudart, whose functions of the same names are then never called. Its soname
// is libcuda.so.1, so it is also the driver that torch looks for (driver.c). Kernels are torch's
// business: `kernels.py` replaces them before any would be launched.
#define _GNU_SOURCE
#include "runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices.h"
#include "streams.h"

#define VERSION 13020
#define HOST -1 // the device of pinned host memory

struct block {
  char *at;
  size_t size;
  int device;
  struct block *next;
};

static __thread int current;
static __thread cudaError_t last;
static int visible[FAKE_MOST_DEVICES], num_visible = -1;
static pid_t initialised_by;
static int has_asserted;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // of the blocks
static struct block *blocks;
static size_t used[FAKE_MOST_DEVICES];
static int has_context[FAKE_MOST_DEVICES];

// Initialises the driver on first use.
static int count(void) {
  if (num_visible >= 0) return num_visible;
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  char said[300];
  snprintf(said, sizeof said, "initialised; CUDA_VISIBLE_DEVICES=%s", list ? list : "(unset)");
  fake_log(said);
  initialised_by = getpid();
  return num_visible = fake_visible_devices(visible);
}

int fake_current_device(void) { return current; }
int fake_machine_device(void) { return visible[current]; }

cudaError_t fake_state(void) {
  count();
  if (has_asserted) return cudaErrorAssert;
  if (initialised_by == getpid()) return cudaSuccess;
  fake_log("FORKED after CUDA was initialised: error 3");
  return cudaErrorInitializationError;
}

cudaError_t fake_fail(cudaError_t error) { return last = error; }

// What a kernel's failed assertion does: this process has no use of its devices any more.
__attribute__((visibility("default"))) void fake_assert(void) { has_asserted = 1; }

API cudaGetLastError(void) {
  cudaError_t error = has_asserted ? cudaErrorAssert : last;
  last = cudaSuccess;
  return error;
}
API cudaPeekAtLastError(void) { return has_asserted ? cudaErrorAssert : last; }

// --- Devices

API cudaGetDeviceCount(int *n) {
  NEEDS_DEVICE;
  *n = count();
  return *n ? cudaSuccess : fake_fail(cudaErrorNoDevice);
}
API cudaGetDevice(int *device) {
  *device = current;
  OK;
}
API cudaSetDevice(int device) {
  NEEDS_DEVICE;
  if (device < 0 || device >= count()) return fake_fail(cudaErrorInvalidDevice);
  current = device;
  OK;
}
API cudaDriverGetVersion(int *version) {
  *version = VERSION;
  OK;
}
API cudaRuntimeGetVersion(int *version) {
  *version = VERSION;
  OK;
}
API cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  NEEDS_DEVICE;
  if (device < 0 || device >= count()) return fake_fail(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  fake_device_name(p->name, visible[device]);
  fake_capability(&p->major, &p->minor);
  p->totalGlobalMem = fake_device_bytes();
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxThreadsPerMultiProcessor = 2048;
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = 232448;
  p->sharedMemPerMultiprocessor = 233472;
  p->regsPerMultiprocessor = 65536;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->unifiedAddressing = p->canMapHostMemory = 1;
  p->pciBusID = visible[device];
  memcpy(p->uuid.bytes, "\xfa\x6e\0\0\0\0\x40\0\x80\0\0\0\0\0\0", 15);
  p->uuid.bytes[15] = visible[device] + 1;
  OK;
}
API cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  int major, minor;
  fake_capability(&major, &minor);
  *value = attribute == cudaDevAttrComputeCapabilityMajor   ? major
           : attribute == cudaDevAttrComputeCapabilityMinor ? minor
           : attribute == cudaDevAttrWarpSize               ? 32
                                                            : 0;
  OK;
}
API cudaDeviceGetPCIBusId(char *text, int length, int device) {
  snprintf(text, length, "0000:%02x:00.0", visible[device]);
  OK;
}
API cudaDeviceCanAccessPeer(int *can, int one, int other) {
  *can = one != other;
  OK;
}
API cudaDeviceEnablePeerAccess(int device, unsigned flags) { OK; }
API cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  OK;
}

// --- Memory

static size_t bytes_of(const char *variable) {
  const char *text = getenv(variable);
  return text ? strtoull(text, NULL, 10) : 0;
}

// Counts the context of a device that this process uses for the first time; under the lock.
static void open_context(int device) {
  if (has_context[device]) return;
  has_context[device] = 1;
  used[device] += bytes_of("FAKE_GPU_CONTEXT_BYTES");
}

void fake_count_communicator(int is_open) {
  size_t bytes = bytes_of("FAKE_GPU_COMMUNICATOR_BYTES");
  pthread_mutex_lock(&lock);
  used[current] += is_open ? bytes : -bytes;
  pthread_mutex_unlock(&lock);
}

// What this process holds on a device of the machine; for NVML, which initialises nothing.
__attribute__((visibility("default"))) size_t fake_used(int device) {
  for (int n = 0; n < num_visible; n++) {
    if (visible[n] == device) return used[n];
  }
  return 0;
}

static cudaError_t take(void **at, size_t size, int device) {
  NEEDS_DEVICE;
  struct block *block = malloc(sizeof *block);
  pthread_mutex_lock(&lock);
  if (device != HOST) open_context(device);
  if (device != HOST && used[device] + size > fake_device_bytes()) {
    pthread_mutex_unlock(&lock);
    free(block);
    return fake_fail(cudaErrorMemoryAllocation);
  }
  *at = aligned_alloc(512, (size + 511) / 512 * 512 + 512);
  memset(*at, 0xFF, size); // what nobody has written is NaN
  *block = (struct block){*at, size, device, blocks};
  blocks = block;
  if (device != HOST) used[device] += size;
  pthread_mutex_unlock(&lock);
  OK;
}

static cudaError_t drop(void *at, int is_ours) {
  if (!at) OK;
  pthread_mutex_lock(&lock);
  for (struct block **link = &blocks; *link; link = &(*link)->next) {
    struct block *block = *link;
    if (block->at != at) continue;
    *link = block->next;
    if (block->device != HOST) used[block->device] -= block->size;
    pthread_mutex_unlock(&lock);
    if (is_ours) free(at);
    free(block);
    OK;
  }
  pthread_mutex_unlock(&lock);
  return fake_fail(cudaErrorInvalidValue);
}

API cudaMalloc(void **at, size_t size) { return take(at, size, current); }
API cudaFree(void *at) { return drop(at, 1); }
API cudaHostAlloc(void **at, size_t size, unsigned flags) { return take(at, size, HOST); }
API cudaMallocHost(void **at, size_t size) { return take(at, size, HOST); }
API cudaFreeHost(void *at) { return drop(at, 1); }
API cudaHostRegister(void *at, size_t size, unsigned flags) {
  NEEDS_DEVICE;
  struct block *block = malloc(sizeof *block);
  pthread_mutex_lock(&lock);
  *block = (struct block){at, size, HOST, blocks};
  blocks = block;
  pthread_mutex_unlock(&lock);
  OK;
}
API cudaHostUnregister(void *at) { return drop(at, 0); }
API cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  *total_bytes = fake_device_bytes();
  *free_bytes = *total_bytes - used[current];
  OK;
}
API cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at) {
  memset(attributes, 0, sizeof *attributes);
  attributes->device = -1;
  attributes->type = cudaMemoryTypeUnregistered;
  pthread_mutex_lock(&lock);
  for (struct block *block = blocks; block; block = block->next) {
    if ((char *)at < block->at || (char *)at >= block->at + block->size) continue;
    int is_host = block->device == HOST;
    attributes->type = is_host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = is_host ? current : block->device;
    attributes->hostPointer = is_host ? (void *)at : NULL;
    attributes->devicePointer = (void *)at;
    break;
  }
  pthread_mutex_unlock(&lock);
  OK;
}
API cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                    cudaStream_t stream) {
  fake_drain(stream);
  NEEDS_DEVICE;
  memmove(to, from, size);
  OK;
}
API cudaMemcpy(void *to, const void *from, size_t size, enum cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, size, kind, 0);
}
API cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t size,
                        cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, stream);
}
API cudaMemsetAsync(void *at, int value, size_t size, cudaStream_t stream) {
  fake_drain(stream);
  NEEDS_DEVICE;
  memset(at, value, size);
  OK;
}
API cudaMemset(void *at, int value, size_t size) { return cudaMemsetAsync(at, value, size, 0); }

// --- Kernels: one that nobody has replaced is loud.

API cudaLaunchKernel(const void *f, dim3 g, dim3 b, void **a, size_t m, cudaStream_t s) {
  return fake_fail(cudaErrorNoKernelImageForDevice);
}
API cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *f, void **a) {
  return fake_fail(cudaErrorNoKernelImageForDevice);
}
API __cudaLaunchKernel(void *k, dim3 g, dim3 b, void **a, size_t m, cudaStream_t s) {
  return fake_fail(cudaErrorNoKernelImageForDevice);
}
API __cudaGetKernel(void **kernel, const void *function) {
  *kernel = (void *)function;
  OK;
}
API cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  memset(attributes, 0, sizeof *attributes);
  attributes->binaryVersion = attributes->ptxVersion = 90;
  OK;
}
API cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) { OK; }
API cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *f, int b, size_t m) {
  *n = 1;
  OK;
}

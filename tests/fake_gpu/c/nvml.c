// The few functions of NVML that find devices: for Saturn's Rust side, and for torch's own count.
// A library of its own, libnvidia-ml.so.1. A handle is the device's number plus one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"

#define API __attribute__((visibility("default"))) int
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7

struct memory {
  unsigned long long total, free, used;
};
struct memory_v2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

static int put(char *to, unsigned length, const char *text) {
  if (strlen(text) >= length) return INSUFFICIENT_SIZE;
  strcpy(to, text);
  return 0;
}

API nvmlInit(void) { return 0; }
API nvmlInit_v2(void) { return 0; }
API nvmlInitWithFlags(unsigned flags) { return 0; }
API nvmlShutdown(void) { return 0; }
__attribute__((visibility("default"))) const char *nvmlErrorString(int error) {
  return error ? "an error of the fake NVML" : "Success";
}
API nvmlSystemGetDriverVersion(char *to, unsigned length) { return put(to, length, "595.00"); }
API nvmlSystemGetNVMLVersion(char *to, unsigned length) { return put(to, length, "13.595.00"); }
API nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13020;
  return 0;
}
API nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}
API nvmlDeviceGetCount_v2(unsigned *count) {
  *count = fake_device_count();
  return 0;
}
API nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }
API nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if (index >= (unsigned)fake_device_count()) return INVALID_ARGUMENT;
  *handle = (void *)(index + 1ul);
  return 0;
}
API nvmlDeviceGetHandleByIndex(unsigned index, void **handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
API nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  for (int device = 0; device < fake_device_count(); device++) {
    char own[FAKE_UUID_LENGTH];
    fake_device_uuid(own, device);
    if (!strcmp(own, uuid)) return nvmlDeviceGetHandleByIndex_v2(device, handle);
  }
  return NOT_FOUND;
}
API nvmlDeviceGetIndex(void *handle, unsigned *index) {
  *index = (unsigned long)handle - 1;
  return 0;
}
API nvmlDeviceGetUUID(void *handle, char *to, unsigned length) {
  char uuid[FAKE_UUID_LENGTH];
  fake_device_uuid(uuid, (int)(unsigned long)handle - 1);
  return put(to, length, uuid);
}
API nvmlDeviceGetName(void *handle, char *to, unsigned length) {
  char name[FAKE_NAME_LENGTH];
  fake_device_name(name, (int)(unsigned long)handle - 1);
  return put(to, length, name);
}
// Of the runtime, where this process has it: its own use of a device, of which no other knows.
extern size_t fake_used(int device) __attribute__((weak));
static size_t used(void *handle) {
  return fake_used ? fake_used((int)(unsigned long)handle - 1) : 0;
}
API nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
  memory->total = fake_device_bytes();
  memory->used = used(handle);
  memory->free = memory->total - memory->used;
  return 0;
}

API nvmlDeviceGetMemoryInfo_v2(void *handle, struct memory_v2 *memory) {
  memory->total = fake_device_bytes();
  memory->reserved = 0;
  memory->used = used(handle);
  memory->free = memory->total - memory->used;
  return 0;
}

API nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *pending) {
  const char *text = getenv("FAKE_GPU_MIG");
  *now = *pending = text && atoi(text) == (int)(unsigned long)handle - 1;
  return 0;
}

// What torch asks when it runs out of memory.
API nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **handle) {
  unsigned domain, device;
  if (sscanf(bus, "%x:%x", &domain, &device) != 2) return INVALID_ARGUMENT;
  return nvmlDeviceGetHandleByIndex_v2(device, handle);
}
API nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count, void *processes) {
  *count = 0;
  return 0;
}

// Saturn asks who computes. A line `DEVICE PID BYTES` of the file FAKE_GPU_PROGRAMS is a process.
struct process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
API nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, struct process *into) {
  const char *path = getenv("FAKE_GPU_PROGRAMS");
  FILE *file = path ? fopen(path, "r") : NULL;
  unsigned room = into ? *count : 0, found = 0, device;
  struct process one = {0, 0, -1u, -1u};
  while (file && fscanf(file, "%u %u %llu", &device, &one.pid, &one.bytes) == 3) {
    if (device + 1ul != (unsigned long)handle) continue;
    if (found < room) into[found] = one;
    found++;
  }
  if (file) fclose(file);
  *count = found;
  return found > room ? INSUFFICIENT_SIZE : 0;
}
API nvmlDeviceGetNvLinkRemoteDeviceType(void *handle, unsigned link, int *type) {
  return NOT_SUPPORTED;
}
API nvmlDeviceGetNvLinkRemotePciInfo_v2(void *handle, unsigned link, void *info) {
  return NOT_SUPPORTED;
}

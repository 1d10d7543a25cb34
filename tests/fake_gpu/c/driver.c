// The few functions of the CUDA driver that torch asks for, by name, at run time.
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <string.h>

#define DRIVER __attribute__((visibility("default"))) int
#define NOT_SUPPORTED 801

DRIVER cuInit(unsigned flags) { return 0; }
DRIVER cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *is_active) {
  *flags = 0;
  *is_active = 1;
  return 0;
}
DRIVER cuCtxGetCurrent(void **context) {
  *context = (void *)1;
  return 0;
}
DRIVER cuGetErrorString(int error, const char **text) {
  *text = "an error of the fake driver";
  return 0;
}
DRIVER cuDeviceGet(int *device, int index) {
  *device = index;
  return 0;
}
DRIVER cuDeviceGetAttribute(int *value, int attribute, int device) {
  *value = 0;
  return 0;
}
DRIVER cuDeviceGetCount(int *count) { return cudaGetDeviceCount(count); }

static int not_supported(void) { return NOT_SUPPORTED; }

__attribute__((visibility("default"))) cudaError_t cudaGetDriverEntryPointByVersion(
    const char *name, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *result) {
  *function = dlsym(RTLD_DEFAULT, name);
  if (!*function && !strncmp(name, "cu", 2)) *function = (void *)not_supported;
  if (result) {
    *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

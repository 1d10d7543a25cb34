// Which devices there are: the one thing that the runtime and NVML must agree on.
//
// All of it is read from the environment, once a process:
//   FAKE_GPU_DEVICES      how many (4)
//   FAKE_GPU_BYTES        what each holds (1 GiB)
//   FAKE_GPU_NAMES        what they are called, with commas between; the last is that of the others too
//   FAKE_GPU_CONTEXT_BYTES, FAKE_GPU_COMMUNICATOR_BYTES  what a context and a communicator take (0)
//   FAKE_GPU_MIG          the number of the device that is split into MIG slices (none)
//   FAKE_GPU_CAPABILITY   what they can compute ("9.0")
//   FAKE_GPU_LOG          a file that is told who initialises the runtime, and who uses it in vain
//   CUDA_VISIBLE_DEVICES  by number, or by the beginning of a UUID; what is no device hides those
//                         after it, as with the real driver
#pragma once
#include <stddef.h>

#define FAKE_MOST_DEVICES 64
#define FAKE_UUID_LENGTH 41 // "GPU-", 36 characters, and the zero
#define FAKE_NAME_LENGTH 64

// Devices of the machine, visible or not.
int fake_device_count(void);
// Bytes of each.
size_t fake_device_bytes(void);
// Its UUID, as text of FAKE_UUID_LENGTH.
void fake_device_uuid(char *text, int device);
// What it is called, as text of FAKE_NAME_LENGTH.
void fake_device_name(char *text, int device);
// What all of them can compute.
void fake_capability(int *major, int *minor);
// The visible ones, in their order; returns how many.
int fake_visible_devices(int devices[FAKE_MOST_DEVICES]);
// One line into FAKE_GPU_LOG, where that is set.
void fake_log(const char *what);

// Which devices there are; see devices.h.
#define _GNU_SOURCE
#include "devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int fake_device_count(void) {
  const char *text = getenv("FAKE_GPU_DEVICES");
  int count = text ? atoi(text) : 4;
  return count < FAKE_MOST_DEVICES ? count : FAKE_MOST_DEVICES;
}

size_t fake_device_bytes(void) {
  const char *text = getenv("FAKE_GPU_BYTES");
  return text ? strtoull(text, NULL, 10) : (size_t)1 << 30;
}

void fake_device_uuid(char *text, int device) {
  snprintf(text, FAKE_UUID_LENGTH, "GPU-fa6e0000-0000-4000-8000-%012x", device + 1);
}

void fake_device_name(char *text, int device) {
  const char *names = getenv("FAKE_GPU_NAMES");
  if (!names) names = "Fake GPU";
  for (const char *comma; device > 0 && (comma = strchr(names, ',')); device--) names = comma + 1;
  snprintf(text, FAKE_NAME_LENGTH, "%.*s", (int)strcspn(names, ","), names);
}

void fake_capability(int *major, int *minor) {
  const char *text = getenv("FAKE_GPU_CAPABILITY");
  if (!text || sscanf(text, "%d.%d", major, minor) != 2) {
    *major = 9;
    *minor = 0;
  }
}

// The device that an entry of CUDA_VISIBLE_DEVICES names; -1 for none.
static int named(const char *entry, size_t length) {
  char *end;
  long number = strtol(entry, &end, 10);
  if (length && end == entry + length) {
    return number >= 0 && number < fake_device_count() ? (int)number : -1;
  }
  for (int device = 0; device < fake_device_count() && length > 4; device++) {
    char uuid[FAKE_UUID_LENGTH];
    fake_device_uuid(uuid, device);
    if (!strncmp(uuid, entry, length)) return device;
  }
  return -1;
}

int fake_visible_devices(int devices[FAKE_MOST_DEVICES]) {
  const char *list = getenv("CUDA_VISIBLE_DEVICES");
  int count = 0;
  if (!list) {
    for (; count < fake_device_count(); count++) devices[count] = count;
    return count;
  }
  while (*list && count < FAKE_MOST_DEVICES) {
    size_t length = strcspn(list, ",");
    int device = named(list, length);
    if (device < 0) break;
    devices[count++] = device;
    list += length + (list[length] == ',');
  }
  return count;
}

void fake_log(const char *what) {
  const char *path = getenv("FAKE_GPU_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file) return;
  fprintf(file, "%d (child of %d) %s\n", getpid(), getppid(), what);
  fclose(file);
}

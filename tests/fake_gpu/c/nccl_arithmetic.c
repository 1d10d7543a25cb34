// Reductions of NCCL's types. Parts are added in the order of the ranks, so that the sum is the
// same on each: what NCCL promises too. Sixteen-bit numbers are added in 32 bits and rounded once.
#include "nccl_arithmetic.h"

#include <string.h>

size_t fake_size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt32: case ncclUint32: case ncclFloat32: return 4;
    case ncclInt64: case ncclUint64: case ncclFloat64: return 8;
    case ncclFloat16: case ncclBfloat16: return 2;
    default: return 1;
  }
}

static float from_float16(const char *at) {
  _Float16 value;
  memcpy(&value, at, 2);
  return value;
}
static void to_float16(char *at, float value) {
  _Float16 rounded = value;
  memcpy(at, &rounded, 2);
}
static float from_bfloat16(const char *at) {
  unsigned short half;
  memcpy(&half, at, 2);
  unsigned whole = (unsigned)half << 16;
  float value;
  memcpy(&value, &whole, 4);
  return value;
}
static void to_bfloat16(char *at, float value) {
  unsigned whole;
  memcpy(&whole, &value, 4);
  whole += 0x7fff + ((whole >> 16) & 1); // to the nearest, ties to even
  unsigned short half = whole >> 16;
  memcpy(at, &half, 2);
}

// `T` is what is reckoned in; `get` reads one number at `from`, `put` writes `sum` at `to`.
#define REDUCE(T, get, put)                                     \
  for (size_t i = 0; i < n; i++) {                              \
    char *to = out + i * size;                                  \
    T sum = 0;                                                  \
    for (int part = 0; part < count; part++) {                  \
      const char *from = parts + part * stride + i * size;      \
      T value = get;                                            \
      sum = part == 0         ? value                           \
            : op == ncclProd  ? sum * value                     \
            : op == ncclMax   ? (sum > value ? sum : value)     \
            : op == ncclMin   ? (sum < value ? sum : value)     \
                              : sum + value;                    \
    }                                                           \
    if (op == ncclAvg) sum /= count;                            \
    put;                                                        \
  }                                                             \
  break
#define PLAIN(T) REDUCE(T, *(const T *)from, *(T *)to = sum)

void fake_reduce(char *out, const char *parts, int count, size_t stride, size_t n,
                 ncclDataType_t type, ncclRedOp_t op) {
  size_t size = fake_size_of(type);
  switch (type) {
    case ncclInt8: PLAIN(signed char);
    case ncclUint8: PLAIN(unsigned char);
    case ncclInt32: PLAIN(int);
    case ncclUint32: PLAIN(unsigned);
    case ncclInt64: PLAIN(long long);
    case ncclUint64: PLAIN(unsigned long long);
    case ncclFloat32: PLAIN(float);
    case ncclFloat64: PLAIN(double);
    case ncclFloat16: REDUCE(float, from_float16(from), to_float16(to, sum));
    case ncclBfloat16: REDUCE(float, from_bfloat16(from), to_bfloat16(to, sum));
    default: break; // eight-bit floats: not here
  }
}

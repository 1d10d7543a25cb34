// Reductions of NCCL's types.
#pragma once
#include <nccl.h>
#include <stddef.h>

// Bytes of one number of a type.
size_t fake_size_of(ncclDataType_t type);
// out[i] over `count` parts that lie `stride` bytes apart, for i < n.
void fake_reduce(char *out, const char *parts, int count, size_t stride, size_t n,
                 ncclDataType_t type, ncclRedOp_t op);

// nccl.h wants the C++ header; the C one has all that it uses.
#pragma once
#include <cuda_runtime_api.h>

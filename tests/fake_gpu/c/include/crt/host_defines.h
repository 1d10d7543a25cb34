// crt/host_defines.h, which NVIDIA's wheels leave out of their headers: for a host compiler, nothing.
#pragma once
#define __host__
#define __device__
#define __global__
#define __device_builtin__
#define __cudart_builtin__
#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDAAPI
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __specialization_static static

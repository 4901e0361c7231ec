//===- Cublas.cpp - cuBLAS of the stand-in --------------------------------===//
//
// Handles and products of matrices. A product is an operation of its stream, as
// a kernel is, in graphs too. It adds up in float, in ascending order. What
// cuBLAS would do but at a price is a finding: a product without a workspace of
// the caller's since its stream was set, for which cuBLAS allocates.
//
//===----------------------------------------------------------------------===//

#include "Cublas.h"
#include "CudaCall.h"

#include <cuda_bf16.h>

#include <algorithm>

using namespace penstock::standin;

struct cublasContext {
  int device = 0;
  cudaStream_t stream = nullptr;
  const void *workspace = nullptr; ///< of the caller
  cublasMath_t mathMode = CUBLAS_DEFAULT_MATH;
};

namespace {

/// `fn(world, lock, thread)` as one call of cuBLAS.
template <typename Fn>
cublasStatus_t cublas(const char *function, Fn &&fn, unsigned flags = 0) {
  Call call(function, Library::Cublas);
  if (InsideOperation::current) {
    call.world.find(std::string(InsideOperation::current) + " calls " +
                    function + ", which CUDA does not allow");
    return CUBLAS_STATUS_EXECUTION_FAILED;
  }
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  if (!call.injected || flags & kReleases)
    status = fn(call.world, call.lock, call.thread);
  if (call.injected)
    return static_cast<cublasStatus_t>(*call.injected);
  if (call.world.devices[call.thread.device].broken != cudaSuccess)
    return CUBLAS_STATUS_EXECUTION_FAILED;
  return status;
}

/// The same with a handle, which must be one of the current device.
template <typename Fn>
cublasStatus_t withHandle(const char *function, cublasHandle_t handle,
                          Fn &&fn) {
  return cublas(function, [&](World &world, Lock &lock, Thread &thread) {
    if (!world.blasHandles.count(handle))
      return CUBLAS_STATUS_NOT_INITIALIZED;
    if (handle->device != thread.device) {
      world.find(std::string(function) + " with a handle of device " +
                 std::to_string(handle->device) + " on device " +
                 std::to_string(thread.device));
      return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    return fn(world, lock, thread);
  });
}

float load(const void *data, cudaDataType type, int64_t i) {
  return type == CUDA_R_32F
             ? static_cast<const float *>(data)[i]
             : __bfloat162float(static_cast<const __nv_bfloat16 *>(data)[i]);
}
void store(void *data, cudaDataType type, int64_t i, float value) {
  if (type == CUDA_R_32F)
    static_cast<float *>(data)[i] = value;
  else // to the nearest, ties to even
    static_cast<__nv_bfloat16 *>(data)[i] = __float2bfloat16_rn(value);
}

/// A matrix by columns, `rows` x `cols` as it lies in memory.
struct Operand {
  const char *name;
  const void *data;
  cudaDataType type;
  int rows, cols, ld;
  bool transposed;

  size_t bytes() const {
    const size_t element = type == CUDA_R_32F ? 4 : 2;
    return ((size_t(cols) - 1) * ld + rows) * element;
  }
  float at(int64_t i, int64_t j) const {
    return load(data, type, transposed ? j + i * ld : i + j * ld);
  }
};

struct Product {
  Operand a, b;
  void *c;
  cudaDataType type;
  int m, n, k, ldc;
  float alpha, beta;

  void run() const {
    std::vector<float> column(m);
    for (int64_t j = 0; j < n; ++j) {
      std::ranges::fill(column, 0.0f);
      for (int p = 0; p < k; ++p) {
        const float factor = b.at(p, j);
        for (int i = 0; i < m; ++i)
          column[i] += a.at(i, p) * factor;
      }
      for (int i = 0; i < m; ++i) {
        float value = alpha * column[i];
        if (beta != 0) // else what is there does not matter
          value += beta * load(c, type, i + j * ldc);
        store(c, type, i + j * ldc, value);
      }
    }
  }
};

bool isProductOf(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T;
}

/// Whether all of the operand is memory of the device; else it is a finding.
bool isOnDevice(World &world, int device, const char *name, const void *data,
                size_t bytes) {
  const std::string what = std::string("cublasGemmEx, matrix ") + name;
  auto it = world.lookUp(data, bytes);
  if (it != world.memory.end() && !it->second.freed &&
      (it->second.kind != Allocation::DeviceMemory ||
       it->second.device == device))
    return true;
  if (world.checkRange(data, bytes, what))
    world.find(what + ", is not in memory of device " + std::to_string(device));
  return false;
}

} // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
  return cublas("cublasCreate", [&](World &world, Lock &, Thread &thread) {
    if (!handle)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (world.forbidInCapture(thread) != cudaSuccess)
      return CUBLAS_STATUS_NOT_INITIALIZED;
    auto made = std::make_shared<cublasContext>();
    made->device = thread.device;
    *handle = made.get();
    world.blasHandles.emplace(made.get(), made);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  return cublas(
      "cublasDestroy",
      [&](World &world, Lock &, Thread &) {
        return world.blasHandles.erase(handle) ? CUBLAS_STATUS_SUCCESS
                                               : CUBLAS_STATUS_NOT_INITIALIZED;
      },
      kReleases);
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  return withHandle("cublasSetStream", handle,
                    [&](World &world, Lock &, Thread &thread) {
                      CUstream_st *known = world.stream(stream, thread);
                      if (!known || known->device != handle->device)
                        return CUBLAS_STATUS_INVALID_VALUE;
                      handle->stream = stream;
                      handle->workspace = nullptr; // its own one
                      return CUBLAS_STATUS_SUCCESS;
                    });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace,
                                     size_t bytes) {
  return withHandle(
      "cublasSetWorkspace", handle, [&](World &world, Lock &, Thread &) {
        if (!workspace || reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
          return CUBLAS_STATUS_INVALID_VALUE;
        if (!isOnDevice(world, handle->device, "workspace", workspace, bytes))
          return CUBLAS_STATUS_INVALID_VALUE;
        handle->workspace = workspace;
        return CUBLAS_STATUS_SUCCESS;
      });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return withHandle("cublasSetMathMode", handle,
                    [&](World &, Lock &, Thread &) {
                      handle->mathMode = mode;
                      return CUBLAS_STATUS_SUCCESS;
                    });
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t opA,
                            cublasOperation_t opB, int m, int n, int k,
                            const void *alpha, const void *a,
                            cudaDataType typeA, int lda, const void *b,
                            cudaDataType typeB, int ldb, const void *beta,
                            void *c, cudaDataType typeC, int ldc,
                            cublasComputeType_t compute, cublasGemmAlgo_t) {
  return withHandle(
      "cublasGemmEx", handle, [&](World &world, Lock &lock, Thread &thread) {
        CUstream_st *stream = world.stream(handle->stream, thread);
        if (!stream) {
          world.find("cublasGemmEx on a stream that is destroyed");
          return CUBLAS_STATUS_INVALID_VALUE;
        }
        if (!isProductOf(opA) || !isProductOf(opB) || m < 0 || n < 0 || k < 0 ||
            !alpha || !beta)
          return CUBLAS_STATUS_INVALID_VALUE;
        const bool isFloat = typeA == CUDA_R_32F && typeC == CUDA_R_32F;
        const bool isBFloat16 =
            typeA == CUDA_R_16BF && (typeC == CUDA_R_32F || typeC == typeA);
        if (typeA != typeB || (!isFloat && !isBFloat16) ||
            compute != CUBLAS_COMPUTE_32F)
          return CUBLAS_STATUS_NOT_SUPPORTED;
        if (m == 0 || n == 0)
          return CUBLAS_STATUS_SUCCESS;
        const bool tA = opA == CUBLAS_OP_T, tB = opB == CUBLAS_OP_T;
        Product product{{"A", a, typeA, tA ? k : m, tA ? m : k, lda, tA},
                        {"B", b, typeB, tB ? n : k, tB ? k : n, ldb, tB},
                        c,
                        typeC,
                        m,
                        n,
                        k,
                        ldc,
                        *static_cast<const float *>(alpha),
                        *static_cast<const float *>(beta)};
        const Operand result{"C", c, typeC, m, n, ldc, false};
        for (const Operand *operand : std::initializer_list<const Operand *>{
                 &product.a, &product.b, &result}) {
          if (k == 0 && operand != &result)
            continue;
          if (operand->ld < std::max(1, operand->rows))
            return CUBLAS_STATUS_INVALID_VALUE;
          if (!isOnDevice(world, handle->device, operand->name, operand->data,
                          operand->bytes()))
            return CUBLAS_STATUS_EXECUTION_FAILED;
          const auto *begin = static_cast<const std::byte *>(operand->data);
          const auto *out = static_cast<const std::byte *>(c);
          if (operand != &result && begin < out + result.bytes() &&
              out < begin + operand->bytes())
            world.find(std::string("cublasGemmEx writes C over ") +
                       operand->name);
        }
        if (!handle->workspace)
          world.find("cublasGemmEx without a workspace of the caller's since "
                     "cublasSetStream: cuBLAS allocates one");
        OpSpec spec;
        spec.what = "cublasGemmEx";
        spec.work = [product] {
          product.run();
          return cudaSuccess;
        };
        return world.enqueue(lock, {&stream, 1}, spec) == cudaSuccess
                   ? CUBLAS_STATUS_SUCCESS
                   : CUBLAS_STATUS_EXECUTION_FAILED;
      });
}

const char *cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
#define CASE(name)                                                             \
  case name:                                                                   \
    return #name;
    CASE(CUBLAS_STATUS_SUCCESS)
    CASE(CUBLAS_STATUS_NOT_INITIALIZED)
    CASE(CUBLAS_STATUS_ALLOC_FAILED)
    CASE(CUBLAS_STATUS_INVALID_VALUE)
    CASE(CUBLAS_STATUS_ARCH_MISMATCH)
    CASE(CUBLAS_STATUS_MAPPING_ERROR)
    CASE(CUBLAS_STATUS_EXECUTION_FAILED)
    CASE(CUBLAS_STATUS_INTERNAL_ERROR)
    CASE(CUBLAS_STATUS_NOT_SUPPORTED)
#undef CASE
  default:
    return "CUBLAS_STATUS";
  }
}
const char *cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
  case CUBLAS_STATUS_SUCCESS:
    return "success";
  case CUBLAS_STATUS_NOT_INITIALIZED:
    return "the library was not initialized";
  case CUBLAS_STATUS_ALLOC_FAILED:
    return "the resource allocation failed";
  case CUBLAS_STATUS_EXECUTION_FAILED:
    return "the function failed to launch on the GPU";
  default:
    return "an error";
  }
}

} // extern "C"

void penstock::standin::fail(std::string_view function, uint64_t n,
                             cublasStatus_t error) {
  inject(function, n, cudaErrorUnknown, ncclUnhandledCudaError, error);
}

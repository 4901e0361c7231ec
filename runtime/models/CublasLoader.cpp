//===- CublasLoader.cpp - cuBLAS, when it is needed -----------------------===//
//
// The functions of cuBLAS that the model calls, found at their first use. A
// program that is linked with cuBLAS takes a tenth of a second longer to start,
// whatever it is started for.
//
//===----------------------------------------------------------------------===//

#include <cublas_v2.h>

#include <dlfcn.h>

#include <string>

namespace {

struct Library {
  void *handle = dlopen(PENSTOCK_CUBLAS, RTLD_NOW | RTLD_LOCAL);
  std::string fault;
  Library() {
    if (!handle)
      fault = std::string("cannot load cuBLAS, ") + dlerror();
  }
};

Library &library() {
  static Library library;
  return library;
}

template <typename Function>
Function *find(const char *name) {
  void *const handle = library().handle;
  return handle ? reinterpret_cast<Function *>(dlsym(handle, name)) : nullptr;
}

} // namespace

#define FORWARD(name, parameters, arguments)                                   \
  cublasStatus_t name parameters {                                             \
    static const auto function = find<cublasStatus_t parameters>(#name);       \
    return function ? function arguments : CUBLAS_STATUS_NOT_INITIALIZED;      \
  }

extern "C" {

FORWARD(cublasCreate_v2, (cublasHandle_t * handle), (handle))
FORWARD(cublasDestroy_v2, (cublasHandle_t handle), (handle))
FORWARD(cublasSetStream_v2, (cublasHandle_t handle, cudaStream_t stream),
        (handle, stream))
FORWARD(cublasSetWorkspace_v2,
        (cublasHandle_t handle, void *workspace, size_t bytes),
        (handle, workspace, bytes))
FORWARD(cublasSetMathMode, (cublasHandle_t handle, cublasMath_t mode),
        (handle, mode))
FORWARD(cublasGemmEx,
        (cublasHandle_t handle, cublasOperation_t opA, cublasOperation_t opB,
         int m, int n, int k, const void *alpha, const void *a,
         cudaDataType typeA, int lda, const void *b, cudaDataType typeB,
         int ldb, const void *beta, void *c, cudaDataType typeC, int ldc,
         cublasComputeType_t compute, cublasGemmAlgo_t algorithm),
        (handle, opA, opB, m, n, k, alpha, a, typeA, lda, b, typeB, ldb, beta,
         c, typeC, ldc, compute, algorithm))

const char *cublasGetStatusName(cublasStatus_t status) {
  static const auto function =
      find<const char *(cublasStatus_t)>("cublasGetStatusName");
  return function ? function(status) : "CUBLAS_STATUS_NOT_INITIALIZED";
}
const char *cublasGetStatusString(cublasStatus_t status) {
  static const auto function =
      find<const char *(cublasStatus_t)>("cublasGetStatusString");
  return function ? function(status) : library().fault.c_str();
}

} // extern "C"

//===- NoGpuModel.cpp - In place of the model on GPUs ---------------------===//

#include "penstock/Runtime/Models.h"

namespace penstock::runtime {

Result<ModelFactory> makeGpuModel(std::string_view, const std::string &) {
  return Failure{"byte-lm is not built in for GPUs; install CUDA with nvcc and "
                 "cuBLAS, NCCL and GCC, and configure with "
                 "-DPENSTOCK_ENABLE_CUDA=ON, or use --backend=host"};
}

} // namespace penstock::runtime

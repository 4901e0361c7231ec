//===- CublasTest.cpp - cuBLAS of the stand-in ----------------------------===//

#include "Cublas.h"
#include "Testing.h"

#include <cuda_bf16.h>

using namespace penstock::standin;
using namespace penstock::standin::test;

#define EXPECT_CUBLAS(call) EXPECT_EQ(call, CUBLAS_STATUS_SUCCESS) << #call

namespace {

/// A machine with a handle, a stream and memory.
class StandInCublas : public testing::Test {
protected:
  void SetUp() override {
    reset();
    EXPECT_CUBLAS(cublasCreate(&handle));
    stream = makeStream();
    EXPECT_CUDA(cudaMalloc(&workspace, 1 << 10));
    EXPECT_CUBLAS(cublasSetStream(handle, stream));
    EXPECT_CUBLAS(cublasSetWorkspace(handle, workspace, 1 << 10));
    EXPECT_CUDA(cudaMalloc(&memory, 1 << 10));
  }
  void TearDown() override {
    EXPECT_EQ(findings(), expectedFindings);
    EXPECT_CUBLAS(cublasDestroy(handle));
    cudaStreamDestroy(stream);
    cudaFree(workspace);
    cudaFree(memory);
    EXPECT_EQ(leaks(), "");
  }

  float *at(int i) { return static_cast<float *>(memory) + i; }

  /// c (2 x 2) = alpha a b + beta c, with a at 0, b at 16 and c at 32. Unless
  /// transposed a is 2 x 3 and b is 3 x 2, by columns.
  cublasStatus_t multiply(cublasOperation_t opA = CUBLAS_OP_N,
                          cublasOperation_t opB = CUBLAS_OP_N, float alpha = 1,
                          float beta = 0) {
    return cublasGemmEx(handle, opA, opB, 2, 2, 3, &alpha, at(0), CUDA_R_32F,
                        opA == CUBLAS_OP_N ? 2 : 3, at(16), CUDA_R_32F,
                        opB == CUBLAS_OP_N ? 3 : 2, &beta, at(32), CUDA_R_32F,
                        2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  }
  std::vector<float> result() {
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    return {at(32), at(36)};
  }
  void fillOperands() {
    std::iota(at(0), at(6), 1.0f);    // 1 3 5 | 2 4 6
    std::iota(at(16), at(22), 10.0f); // 10 11 12 by columns
    std::fill_n(at(32), 4, 1000.0f);
  }

  cublasHandle_t handle = nullptr;
  cudaStream_t stream = nullptr;
  void *workspace = nullptr, *memory = nullptr;
  std::string expectedFindings;
};

TEST_F(StandInCublas, Products) {
  fillOperands();
  // [1 3 5; 2 4 6] [10 13; 11 14; 12 15]
  EXPECT_CUBLAS(multiply());
  EXPECT_EQ(result(), (std::vector<float>{103, 136, 130, 172}));
  EXPECT_CUBLAS(multiply(CUBLAS_OP_N, CUBLAS_OP_N, 2, 1));
  EXPECT_EQ(result(), (std::vector<float>{309, 408, 390, 516}));
  // [1 2 3; 4 5 6] [10 13; 11 14; 12 15]
  EXPECT_CUBLAS(multiply(CUBLAS_OP_T));
  EXPECT_EQ(result(), (std::vector<float>{68, 167, 86, 212}));
  // [1 3 5; 2 4 6] [10 11; 12 13; 14 15]
  EXPECT_CUBLAS(multiply(CUBLAS_OP_N, CUBLAS_OP_T));
  EXPECT_EQ(result(), (std::vector<float>{116, 152, 125, 164}));
}

TEST_F(StandInCublas, WhatIsThereDoesNotMatterWithoutBeta) {
  fillOperands();
  std::fill_n(at(32), 4, std::numeric_limits<float>::quiet_NaN());
  EXPECT_CUBLAS(multiply());
  EXPECT_EQ(result()[0], 103);
}

TEST_F(StandInCublas, BFloat16AddsUpInFloat) {
  auto *a = reinterpret_cast<__nv_bfloat16 *>(at(0));
  auto *b = reinterpret_cast<__nv_bfloat16 *>(at(64));
  // 256 and 3 times 0.5: of no sum in bfloat16 would the halves be left.
  for (int i = 0; i < 4; ++i) {
    a[i] = __float2bfloat16_rn(i == 0 ? 256.0f : 0.5f);
    b[i] = __float2bfloat16_rn(1);
  }
  const float one = 1, zero = 0;
  auto multiply = [&](void *c, cudaDataType type) {
    EXPECT_CUBLAS(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, 4, &one,
                               a, CUDA_R_16BF, 4, b, CUDA_R_16BF, 4, &zero, c,
                               type, 1, CUBLAS_COMPUTE_32F,
                               CUBLAS_GEMM_DEFAULT));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
  };
  multiply(at(128), CUDA_R_32F);
  EXPECT_EQ(*at(128), 257.5f);
  multiply(at(128), CUDA_R_16BF);
  EXPECT_EQ(__bfloat162float(*reinterpret_cast<__nv_bfloat16 *>(at(128))), 258);
  a[3] = __float2bfloat16_rn(0); // a tie, to the even one of 256 and 258
  multiply(at(128), CUDA_R_16BF);
  EXPECT_EQ(__bfloat162float(*reinterpret_cast<__nv_bfloat16 *>(at(128))), 256);
}

TEST_F(StandInCublas, ProductsAreWorkOfTheStream) {
  fillOperands();
  call(stream, [&] { *at(0) = 2; });
  EXPECT_CUBLAS(multiply());
  call(stream, [&] { *at(32) += 0.5; });
  EXPECT_EQ(result()[0], 113.5f);
}

TEST_F(StandInCublas, ProductsAreCaptured) {
  fillOperands();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_CUBLAS(multiply(CUBLAS_OP_N, CUBLAS_OP_N, 1, 1));
  EXPECT_CUDA(cudaStreamEndCapture(stream, &graph));
  EXPECT_EQ(*at(32), 1000);
  EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i)
    EXPECT_CUDA(cudaGraphLaunch(exec, stream));
  EXPECT_EQ(result()[0], 1206);
  EXPECT_CUDA(cudaGraphExecDestroy(exec));
  EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(StandInCublas, InjectedErrors) {
  fillOperands();
  fail("cublasGemmEx", 2, CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_CUBLAS(multiply());
  EXPECT_EQ(multiply(), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_CUBLAS(multiply());
  failAny(1);
  EXPECT_EQ(multiply(), CUBLAS_STATUS_INTERNAL_ERROR);
  EXPECT_EQ(numCalls("cublasGemmEx"), 4u);
  EXPECT_STREQ(cublasGetStatusName(CUBLAS_STATUS_EXECUTION_FAILED),
               "CUBLAS_STATUS_EXECUTION_FAILED");
  EXPECT_STREQ(cublasGetStatusString(CUBLAS_STATUS_EXECUTION_FAILED),
               "the function failed to launch on the GPU");
  cublasHandle_t another = nullptr;
  EXPECT_CUBLAS(cublasCreate(&another));
  EXPECT_EQ(leaks().find("2 handles of cuBLAS"),
            leaks().find("handles of cuBLAS") - 2);
  EXPECT_CUBLAS(cublasDestroy(another));
  EXPECT_EQ(cublasDestroy(another), CUBLAS_STATUS_NOT_INITIALIZED);
}

TEST_F(StandInCublas, WrongArguments) {
  fillOperands();
  const float one = 1, zero = 0;
  auto multiply = [&](int m, int lda, cudaDataType type,
                      cublasComputeType_t compute, const float *alpha) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, 2, 3, alpha, at(0),
                        type, lda, at(16), type, 3, &zero, at(32), CUDA_R_32F,
                        2, compute, CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(multiply(2, 1, CUDA_R_32F, CUBLAS_COMPUTE_32F, &one),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(-1, 2, CUDA_R_32F, CUBLAS_COMPUTE_32F, &one),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(2, 2, CUDA_R_32F, CUBLAS_COMPUTE_32F, nullptr),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(2, 2, CUDA_R_64F, CUBLAS_COMPUTE_32F, &one),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(2, 2, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, &one),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_CUBLAS(multiply(0, 2, CUDA_R_32F, CUBLAS_COMPUTE_32F, &one));
  EXPECT_EQ(cublasSetWorkspace(handle, at(1), 4), CUBLAS_STATUS_INVALID_VALUE);
}

TEST_F(StandInCublas, MemoryIsChecked) {
  fillOperands();
  std::vector<float> host(4);
  const float one = 1, zero = 0;
  auto multiplyInto = [&](float *c) {
    return cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 3, &one, at(0),
                        CUDA_R_32F, 2, at(16), CUDA_R_32F, 3, &zero, c,
                        CUDA_R_32F, 2, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  };
  EXPECT_EQ(multiplyInto(host.data()), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(multiplyInto(at(253)), CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_CUBLAS(multiplyInto(at(4)));
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  expectedFindings =
      "cublasGemmEx, matrix C, is not in memory of device 0\n"
      "cublasGemmEx, matrix C goes over the bounds of device memory of 1024 "
      "bytes\n"
      "cublasGemmEx writes C over A\n";
}

TEST_F(StandInCublas, AStreamTakesTheWorkspaceAway) {
  fillOperands();
  EXPECT_CUBLAS(cublasSetStream(handle, stream));
  EXPECT_CUBLAS(multiply());
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  expectedFindings = "cublasGemmEx without a workspace of the caller's since "
                     "cublasSetStream: cuBLAS allocates one\n";
}

TEST_F(StandInCublas, AHandleIsOfOneDevice) {
  EXPECT_CUDA(cudaSetDevice(1));
  EXPECT_EQ(multiply(), CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_CUDA(cudaSetDevice(0));
  expectedFindings = "cublasGemmEx with a handle of device 0 on device 1\n";
}

} // namespace

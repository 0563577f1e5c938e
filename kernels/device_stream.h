#pragma once

// Where a kernel runs: the thread pool of the CPU back end, or a CUDA stream. A launcher takes it
// last, and returns when the CPU work is done or the CUDA work is queued.

namespace shardline {

class ThreadPool;

struct DeviceStream {
  ThreadPool* pool = nullptr;   // CPU back end; not owned.
  void* cuda_stream = nullptr;  // CUDA back end: a cudaStream_t.
};

}  // namespace shardline

#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "kernels/device_stream.h"
#include "kernels/flush_denormals.h"
#include "kernels/thread_pool.h"

namespace shardline::cpu {

// body(task) for each task, on the stream's pool, or here when it has none.
inline void RunTasks(DeviceStream stream, int64_t task_count,
                     absl::FunctionRef<void(int64_t task)> body) {
  if (stream.pool != nullptr && task_count > 1) {
    stream.pool->ParallelFor(task_count, body);
    return;
  }
  const ScopedFlushDenormals flush;
  for (int64_t task = 0; task < task_count; ++task) body(task);
}

// body(begin, end) over [0, rows) in runs of about `floats_per_task` floats: a fork and join costs
// microseconds, so small work stays in one piece.
inline void RunRows(DeviceStream stream, int64_t rows, int64_t floats_per_row,
                    absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  constexpr int64_t kFloatsPerTask = 16384;
  const int64_t rows_per_task =
      floats_per_row >= kFloatsPerTask ? 1 : kFloatsPerTask / (floats_per_row + 1) + 1;
  const int64_t tasks = (rows + rows_per_task - 1) / rows_per_task;
  RunTasks(stream, tasks, [&](int64_t task) {
    const int64_t begin = task * rows_per_task;
    body(begin, begin + rows_per_task < rows ? begin + rows_per_task : rows);
  });
}

}  // namespace shardline::cpu

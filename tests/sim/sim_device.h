#pragma once

// The device of one node process: runs its jobs one after the other, each for a while of virtual
// time, and can be slow, hang, break, or answer nonsense.
//
// KV is written when a job ends, the latest moment possible, so that a page given away too early
// is written by a stranger.

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "base/layer_range.h"
#include "node/stage/compute_job.h"
#include "tests/sim/sim_process.h"

namespace shardline::sim {

class SimDevice {
 public:
  using Done = std::function<void(const ComputeJob&, ComputeDone)>;

  // `owner` outlives the device, and no job is finished in another life than it was given in.
  SimDevice(SimProcess* owner, LayerRange layers, int32_t pages_total);

  // `before` looks at the job at the moment its KV is written.
  void Submit(ComputeJob job, std::function<void(const ComputeJob&)> before, Done done);

  void SetSlowness(int64_t factor) { slowness_ = factor; }
  void Hang() { hung_ = true; }
  void Unhang();
  // Its jobs are dropped, and it runs no other.
  void Retire() { queue_.clear(); }
  // Of the jobs that end next.
  void SpoilNext(int count) { non_finite_ = count; }
  void MisshapeNext(int count) { misshapen_ = count; }
  void LoseNext(int count) { lost_ = count; }

  uint64_t jobs_started() const { return jobs_started_; }
  uint64_t jobs_done() const { return jobs_done_; }

 private:
  struct Queued {
    ComputeJob job;
    std::function<void(const ComputeJob&)> before;
    Done done;
  };

  void Begin();
  void End();
  ComputeDone Run(const ComputeJob& job);
  void RunLayers(const ComputeJob& job, ComputeDone& done);
  void RunFinish(const ComputeJob& job, ComputeDone& done);
  uint32_t* Cells(int32_t layer, int32_t page);

  SimProcess* const owner_;
  const LayerRange layers_;
  const int32_t pages_total_;
  std::vector<uint32_t> cells_;  // [layers, pages, page_tokens]
  std::deque<Queued> queue_;     // The front one runs.
  std::vector<float> logits_;    // Scratch.
  bool running_ = false;         // An event will end it.
  bool hung_ = false;
  int64_t slowness_ = 1;
  int non_finite_ = 0;
  int misshapen_ = 0;
  int lost_ = 0;
  uint64_t jobs_started_ = 0;
  uint64_t jobs_done_ = 0;
};

}  // namespace shardline::sim

#include "coordinator/placement/round_cost.h"

#include <algorithm>
#include <map>
#include <set>

namespace shardline {
namespace {

constexpr double kCloseEnough = 0.98;

bool IsMeasured(const StageCost& stage) { return stage.cost.step > absl::ZeroDuration(); }

// Seconds that a stage is busy with a round.
struct StageTime {
  double step = 0;
  double row = 0;
  double bus = 0;        // Of `step`: what it streams from memory.
  double cpu_share = 1;  // Of the cores of its group, while it is busy.
};

// Stages that have to wait for each other.
using Group = std::vector<size_t>;

bool ShareCores(const StageCost& a, const StageCost& b) {
  if (a.machine.empty() || a.machine != b.machine) return false;
  if (a.cpus.empty() || b.cpus.empty()) return true;
  return std::any_of(a.cpus.begin(), a.cpus.end(), [&b](uint32_t cpu) {
    return std::find(b.cpus.begin(), b.cpus.end(), cpu) != b.cpus.end();
  });
}

// Sharing is passed on: who shares with either of two belongs to both.
std::vector<Group> CoreGroups(absl::Span<const StageCost> stages) {
  std::vector<Group> groups;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    Group joined = {stage};
    std::erase_if(groups, [&](const Group& group) {
      const bool shares = std::any_of(group.begin(), group.end(), [&](size_t other) {
        return ShareCores(stages[stage], stages[other]);
      });
      if (shares) joined.insert(joined.end(), group.begin(), group.end());
      return shares;
    });
    groups.push_back(std::move(joined));
  }
  return groups;
}

std::vector<Group> BusGroups(absl::Span<const StageCost> stages) {
  std::map<std::string, Group> machines;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (!stages[stage].machine.empty()) machines[stages[stage].machine].push_back(stage);
  }
  std::vector<Group> groups;
  for (auto& [machine, group] : machines) groups.push_back(std::move(group));
  return groups;
}

// What part of its group's cores a stage keeps busy.
double CpuShare(const StageCost& stage, const Group& group, absl::Span<const StageCost> stages) {
  std::set<uint32_t> cpus;
  for (const size_t other : group) {
    if (stages[other].cpus.empty()) return 1;
    cpus.insert(stages[other].cpus.begin(), stages[other].cpus.end());
  }
  const size_t own = stage.threads == 0 ? stage.cpus.size() : stage.threads;
  return std::min(1.0, static_cast<double>(own) / static_cast<double>(cpus.size()));
}

double ReadSeconds(const StageCost& stage, double read_bytes_per_s) {
  if (read_bytes_per_s <= 0) return 0;
  return static_cast<double>(stage.weight_bytes) / read_bytes_per_s;
}

class Ring {
 public:
  Ring(absl::Span<const StageCost> stages, const RoundLoad& load)
      : load_(load), cores_(CoreGroups(stages)), buses_(BusGroups(stages)) {
    for (const StageCost& stage : stages) times_.push_back(TimeOf(stage));
    for (const Group& group : cores_) {
      for (const size_t i : group) times_[i].cpu_share = CpuShare(stages[i], group, stages);
    }
    for (const Group& bus : buses_) {
      double fastest = 0;
      for (const size_t i : bus) fastest = std::max(fastest, stages[i].read_bytes_per_s);
      for (const size_t i : bus) {
        times_[i].bus = std::min(times_[i].step, ReadSeconds(stages[i], fastest));
      }
    }
  }

  RoundForecast Forecast(int32_t in_flight) const {
    const int32_t busy = std::min(in_flight, load_.sessions);
    const double rows = static_cast<double>(load_.sessions) / busy;
    return {.in_flight = in_flight,
            .decode_tokens_per_s = rows / Period(rows, busy),
            .full_rounds_per_s = 1 / Period(load_.full_rows, in_flight)};
  }

 private:
  // What did not measure reads its weights once, and pays an eighth of that for a row.
  static StageTime TimeOf(const StageCost& stage) {
    if (!IsMeasured(stage)) {
      constexpr double kReadBytesPerS = 1e10;
      const double speed = stage.read_bytes_per_s > 0 ? stage.read_bytes_per_s : kReadBytesPerS;
      const double step = std::max(ReadSeconds(stage, speed), 1e-6);
      return {.step = step, .row = step / 8};
    }
    return {.step = absl::ToDoubleSeconds(stage.cost.step + stage.cost.finish_step),
            .row = absl::ToDoubleSeconds(stage.cost.row + stage.cost.finish_row)};
  }

  // Seconds from one round's begin to the next one's.
  double Period(double rows, int32_t in_flight) const {
    const double lap = Lap(rows);
    const double most = MostNeeded(rows);
    const double smooth = std::max(most, lap / in_flight);
    const double random = (lap + (in_flight - 1) * most) / in_flight;
    return (1 - load_.jitter) * smooth + load_.jitter * random;
  }

  double Lap(double rows) const {
    double lap = 0;
    for (const StageTime& time : times_) lap += time.step + rows * time.row;
    if (times_.size() > 1) {
      lap += static_cast<double>(times_.size()) * absl::ToDoubleSeconds(load_.hop);
    }
    return lap;
  }

  double MostNeeded(double rows) const {
    double most = 0;
    for (const Group& group : cores_) {
      double need = 0;
      for (const size_t i : group) {
        const double busy = times_[i].step + rows * times_[i].row;
        most = std::max(most, busy);
        need += busy * times_[i].cpu_share;
      }
      most = std::max(most, need);
    }
    for (const Group& group : buses_) {
      double need = 0;
      for (const size_t i : group) need += times_[i].bus;
      most = std::max(most, need);
    }
    return most;
  }

  const RoundLoad load_;
  const std::vector<Group> cores_;
  const std::vector<Group> buses_;
  std::vector<StageTime> times_;
};

}  // namespace

std::vector<RoundForecast> ForecastRounds(absl::Span<const StageCost> stages,
                                          const RoundLoad& load) {
  const Ring ring(stages, load);
  const int32_t most = std::min(static_cast<int32_t>(stages.size()) + 1, kRoundsForecastMax);
  std::vector<RoundForecast> forecasts;
  for (int32_t in_flight = 1; in_flight <= most; ++in_flight) {
    forecasts.push_back(ring.Forecast(in_flight));
  }
  return forecasts;
}

RoundChoice ChooseRounds(absl::Span<const StageCost> stages, const RoundLoad& load) {
  RoundChoice choice;
  if (stages.empty()) return choice;
  std::vector<RoundForecast> forecasts = ForecastRounds(stages, load);
  const double one_round = forecasts.front().decode_tokens_per_s;
  std::erase_if(forecasts, [one_round](const RoundForecast& forecast) {
    return forecast.decode_tokens_per_s < kCloseEnough * one_round;
  });
  double best = 0;
  for (const RoundForecast& forecast : forecasts) {
    best = std::max(best, forecast.full_rounds_per_s);
  }
  for (const RoundForecast& forecast : forecasts) {
    if (forecast.full_rounds_per_s < kCloseEnough * best) continue;
    choice.in_flight = forecast.in_flight;
    break;
  }
  // A shard too large for the larger pass has told no price of a row: it is not free.
  const bool has_prices = std::all_of(stages.begin(), stages.end(), [](const StageCost& stage) {
    return IsMeasured(stage) && stage.cost.row > absl::ZeroDuration();
  });
  if (!has_prices) return choice;
  for (const StageCost& stage : stages) {
    choice.lap_step += stage.cost.step + stage.cost.finish_step;
    choice.lap_row += stage.cost.row + stage.cost.finish_row;
  }
  return choice;
}

}  // namespace shardline

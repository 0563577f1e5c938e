#include "node/stage/step_chain.h"

#include <string>

#include "xxhash.h"

namespace shardline {

uint64_t ChainStart(const AttemptKey& attempt, uint32_t hop, const Recipe& recipe) {
  const uint64_t numbers[4] = {attempt.session.value(), attempt.epoch.value(), hop,
                               recipe.plan_epoch.value()};
  const std::string& model = recipe.model_id.value();
  const std::string& numerics = recipe.numerics_id.value();
  const uint64_t of_numbers = XXH3_64bits(numbers, sizeof(numbers));
  const uint64_t of_model = XXH3_64bits_withSeed(model.data(), model.size(), of_numbers);
  return XXH3_64bits_withSeed(numerics.data(), numerics.size(), of_model);
}

uint64_t ChainNext(uint64_t chain, StepIndex step, uint64_t digest) {
  const uint64_t link[3] = {chain, step.value(), digest};
  return XXH3_64bits(link, sizeof(link));
}

uint64_t RowDigest(const BundleRow& row, const void* content, size_t content_bytes) {
  const uint32_t head[5] = {static_cast<uint32_t>(row.position),
                            static_cast<uint32_t>(row.token_count), row.flags, row.hop,
                            static_cast<uint32_t>(row.rejected)};
  const uint64_t of_key = XXH3_64bits_withSeed(
      row.prefix_key.bytes.data(), row.prefix_key.bytes.size(), XXH3_64bits(head, sizeof(head)));
  return XXH3_64bits_withSeed(content, content_bytes, of_key);
}

}  // namespace shardline

#pragma once

// What two JSON schemas say together, and whether a value can match both.
//
// Foreign schemas: what would need more work than kSchemaWorkMax is refused. Any thread.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/grammar/schema_facts.h"

namespace shardline {

inline constexpr int64_t kSchemaWorkMax = 500'000;  // Values that are looked at or copied.

// Not thread-safe. Errors are kInvalidRequest without a path.
class SchemaMerger {
 public:
  // `root` is what `$ref` looks inside; it must outlive this.
  explicit SchemaMerger(const SchemaJson* root) : root_(root) {}

  // The schema that `ref` points at.
  absl::StatusOr<const SchemaJson*> Resolve(const std::string& ref);

  // A schema that says all that `a` and `b` say; `false` if nothing matches both. Fails on what no
  // single schema can say, as two anyOf or two patterns.
  absl::StatusOr<SchemaJson> Merge(const SchemaJson& a, const SchemaJson& b, int depth = 0);

  // False only if no value matches both.
  bool MayOverlap(const SchemaJson& a, const SchemaJson& b, int depth = 0);

  // Fails once too much was asked.
  absl::Status Work(int64_t values = 1);

 private:
  absl::Status MergeObjects(const SchemaJson& a, const SchemaJson& b, int depth, SchemaJson* out);
  bool OwnWordsMayOverlap(const SchemaJson& a, const SchemaJson& b, int depth);
  bool ObjectsMayOverlap(const SchemaJson& a, const SchemaJson& b, int depth);
  absl::Status MergeKeyword(const std::string& keyword, const SchemaJson& a, const SchemaJson& b,
                            int depth, SchemaJson* out);

  const SchemaJson* const root_;
  int64_t work_ = 0;
};

}  // namespace shardline

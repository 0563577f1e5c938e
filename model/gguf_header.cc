#include "model/gguf_header.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/failure.h"
#include "base/status_macros.h"
#include "model/byte_reader.h"

namespace shardline {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
// The least a key-value pair or a tensor entry can take: what a count costs in bytes.
// Empty names are counted as possible here, to be refused as what they are.
constexpr uint64_t kKeyBytesLeast = 8 + 4 + 1;
constexpr uint64_t kTensorBytesLeast = 8 + 4 + 8 + 4 + 8;

class HeaderParser {
 public:
  HeaderParser(const std::string& file, std::span<const std::byte> bytes)
      : file_(file),
        file_bytes_(bytes.size()),
        bytes_(bytes),
        reader_(bytes.first(std::min<size_t>(bytes.size(), kGgufHeaderBytesMax))) {
    header_.metadata = GgufMetadata(file);
  }

  absl::StatusOr<GgufHeader> Parse() {
    SL_RETURN_IF_ERROR(ParsePreamble());
    for (uint64_t i = 0; i < key_count_; ++i) SL_RETURN_IF_ERROR(ParseKey(i));
    SL_RETURN_IF_ERROR(ReadAlignment());
    for (uint64_t i = 0; i < tensor_count_; ++i) SL_RETURN_IF_ERROR(ParseTensor(i));
    SL_RETURN_IF_ERROR(PlaceTensors());
    return std::move(header_);
  }

 private:
  template <typename... Parts>
  absl::Status Bad(const Parts&... parts) const {
    return MakeFailure(FailureKind::kInvalidRequest, absl::StrCat(file_, ": ", parts...));
  }

  absl::Status Truncated(const std::string& what) const {
    if (file_bytes_ > kGgufHeaderBytesMax) {
      return Bad("header ends beyond ", kGgufHeaderBytesMax, " bytes, or file is cut, in ", what);
    }
    return Bad("file of ", file_bytes_, " bytes ends inside ", what);
  }

  absl::Status ParsePreamble() {
    const std::optional<uint32_t> magic = reader_.Read<uint32_t>();
    if (!magic || *magic != kMagic) return Bad("not a GGUF file");
    const std::optional<uint32_t> version = reader_.Read<uint32_t>();
    if (!version) return Truncated("the preamble");
    if ((*version & 0xFFFF) == 0 && *version != 0) {
      return Bad("big-endian GGUF, not supported by this build");
    }
    if (*version != 2 && *version != 3) {
      return Bad("GGUF version ", *version, ", this build reads 2 and 3");
    }
    header_.version = *version;
    const std::optional<uint64_t> tensors = reader_.Read<uint64_t>();
    const std::optional<uint64_t> keys = reader_.Read<uint64_t>();
    if (!tensors || !keys) return Truncated("the preamble");
    if (*tensors > reader_.remaining() / kTensorBytesLeast || *tensors > kGgufTensorsMax) {
      return Bad("tensor count impossible for file of ", file_bytes_, " bytes: ", *tensors);
    }
    if (*keys > reader_.remaining() / kKeyBytesLeast || *keys > kGgufKeysMax) {
      return Bad("key count impossible for file of ", file_bytes_, " bytes: ", *keys);
    }
    tensor_count_ = *tensors;
    key_count_ = *keys;
    return absl::OkStatus();
  }

  absl::Status ParseKey(uint64_t index) {
    const std::string where = absl::StrCat("metadata key ", index);
    const std::optional<std::string_view> key = reader_.ReadString(kGgufKeyBytesMax);
    if (!key) return Bad(where, " has an impossible length");
    if (key->empty()) return Bad(where, " is empty");
    const std::string name = absl::StrCat("metadata key ", Quoted(*key));
    SL_ASSIGN_OR_RETURN(const GgufValueType type, ReadValueType(name));
    GgufValue value{.type = type, .element_type = type};
    if (type == GgufValueType::kArray) {
      SL_RETURN_IF_ERROR(ParseArray(name, value));
    } else {
      SL_ASSIGN_OR_RETURN(value.bytes, ReadScalar(name, type));
    }
    if (!header_.metadata.Add(*key, value)) return Bad(name, " appears twice");
    return absl::OkStatus();
  }

  absl::StatusOr<GgufValueType> ReadValueType(const std::string& name) {
    const std::optional<uint32_t> id = reader_.Read<uint32_t>();
    if (!id) return Truncated(name);
    if (*id >= kGgufValueTypeCount) return Bad(name, " has unknown value type ", *id);
    return static_cast<GgufValueType>(*id);
  }

  absl::StatusOr<std::span<const std::byte>> ReadScalar(const std::string& name,
                                                        GgufValueType type) {
    if (type == GgufValueType::kString) {
      const std::optional<std::string_view> text = reader_.ReadString(kGgufHeaderBytesMax);
      if (!text) return Bad(name, " holds a string of impossible length");
      return std::as_bytes(std::span(text->data(), text->size()));
    }
    const auto bytes = reader_.ReadBytes(GgufValueBytes(type));
    if (!bytes) return Truncated(name);
    if (type == GgufValueType::kBool) SL_RETURN_IF_ERROR(CheckBools(name, *bytes));
    return *bytes;
  }

  absl::Status CheckBools(const std::string& name, std::span<const std::byte> bytes) const {
    for (const std::byte byte : bytes) {
      if (byte > std::byte{1}) return Bad(name, " holds a bool that is neither 0 nor 1");
    }
    return absl::OkStatus();
  }

  absl::Status ParseArray(const std::string& name, GgufValue& value) {
    SL_ASSIGN_OR_RETURN(value.element_type, ReadValueType(name));
    const std::optional<uint64_t> count = reader_.Read<uint64_t>();
    if (!count) return Truncated(name);
    value.count = *count;
    const size_t begin = reader_.position();
    SL_RETURN_IF_ERROR(SkipElements(name, value.element_type, *count, 1));
    value.bytes = bytes_.subspan(begin, reader_.position() - begin);
    return absl::OkStatus();
  }

  absl::Status SkipElements(const std::string& name, GgufValueType type, uint64_t count,
                            int32_t depth) {
    const uint64_t least = type == GgufValueType::kString  ? 8
                           : type == GgufValueType::kArray ? 12
                                                           : GgufValueBytes(type);
    if (count > reader_.remaining() / least) {
      return Bad(name, " has ", count, " elements, impossible for file of ", file_bytes_, " bytes");
    }
    switch (type) {
      case GgufValueType::kString:
        for (uint64_t i = 0; i < count; ++i) {
          if (!reader_.ReadString(kGgufHeaderBytesMax)) {
            return Bad(name, " element ", i, " has an impossible length");
          }
        }
        return absl::OkStatus();
      case GgufValueType::kArray:
        if (depth >= kGgufArrayDepthMax) {
          return Bad(name, " nests arrays deeper than ", kGgufArrayDepthMax);
        }
        for (uint64_t i = 0; i < count; ++i) {
          SL_ASSIGN_OR_RETURN(const GgufValueType inner, ReadValueType(name));
          const std::optional<uint64_t> inner_count = reader_.Read<uint64_t>();
          if (!inner_count) return Truncated(name);
          SL_RETURN_IF_ERROR(SkipElements(name, inner, *inner_count, depth + 1));
        }
        return absl::OkStatus();
      default: {
        const auto bytes = reader_.ReadBytes(count * least);  // Fits: count was bounded above.
        if (!bytes) return Truncated(name);
        return type == GgufValueType::kBool ? CheckBools(name, *bytes) : absl::OkStatus();
      }
    }
  }

  absl::Status ReadAlignment() {
    SL_ASSIGN_OR_RETURN(header_.alignment,
                        header_.metadata.GetUintOr("general.alignment", kDefaultAlignment));
    if (!std::has_single_bit(header_.alignment) || header_.alignment < kGgufAlignmentMin ||
        header_.alignment > kGgufAlignmentMax) {
      return Bad("general.alignment is ", header_.alignment, ", not a power of two from ",
                 kGgufAlignmentMin, " to ", kGgufAlignmentMax);
    }
    return absl::OkStatus();
  }

  absl::Status ParseTensor(uint64_t index) {
    const std::optional<std::string_view> raw_name = reader_.ReadString(kGgufTensorNameBytesMax);
    if (!raw_name) return Bad("tensor ", index, " has a name of impossible length");
    if (raw_name->empty()) return Bad("tensor ", index, " has an empty name");
    const std::string name = absl::StrCat("tensor ", Quoted(*raw_name));
    GgufTensor tensor{.name = *raw_name};
    if (!names_.insert(tensor.name).second) return Bad(name, " appears twice");

    const std::optional<uint32_t> dimension_count = reader_.Read<uint32_t>();
    if (!dimension_count) return Truncated(name);
    if (*dimension_count < 1 || *dimension_count > 4) {
      return Bad(name, " has ", *dimension_count, " dimensions, not 1 to 4");
    }
    for (uint32_t i = 0; i < *dimension_count; ++i) {
      const std::optional<uint64_t> size = reader_.Read<uint64_t>();
      if (!size) return Truncated(name);
      if (*size == 0 || *size > static_cast<uint64_t>(INT64_MAX)) {
        return Bad(name, " has dimension ", i, " of size ", *size);
      }
      tensor.shape.push_back(static_cast<int64_t>(*size));
    }

    const std::optional<uint32_t> type_id = reader_.Read<uint32_t>();
    const std::optional<uint64_t> offset = reader_.Read<uint64_t>();
    if (!type_id || !offset) return Truncated(name);
    const std::optional<GgufTensorType> type = GgufTensorTypeOf(*type_id);
    if (!type) return Bad(name, " has type id ", *type_id, ", not supported by this build");
    tensor.type = *type;
    SL_RETURN_IF_ERROR(AddExtent(name, tensor, *offset));
    header_.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  absl::Status AddExtent(const std::string& name, const GgufTensor& tensor, uint64_t offset) {
    const GgufTensorTypeTraits& traits = TraitsOf(tensor.type);
    if (tensor.shape[0] % traits.block_elements != 0) {
      return Bad(name, " has rows of ", tensor.shape[0], " elements, not whole blocks of ",
                 traits.block_elements, " (", std::string(traits.name), ")");
    }
    const std::optional<int64_t> bytes = TensorBytes(tensor.type, tensor.shape);
    if (!bytes) return Bad(name, " has an impossible shape ", ShapeToString(tensor.shape));
    if (offset % header_.alignment != 0) {
      return Bad(name, " has offset ", offset, ", not a multiple of ", header_.alignment);
    }
    const uint64_t length = static_cast<uint64_t>(*bytes);
    if (__builtin_add_overflow(total_bytes_, length, &total_bytes_) || total_bytes_ > file_bytes_) {
      return Bad(name, " with shape ", ShapeToString(tensor.shape),
                 " takes the tensors beyond the file of ", file_bytes_, " bytes");
    }
    extents_.push_back({offset, length, header_.tensors.size()});
    return absl::OkStatus();
  }

  // Only here is known where the tensor bytes begin: after the last table entry, aligned.
  absl::Status PlaceTensors() {
    if (extents_.empty()) return absl::OkStatus();
    const uint64_t mask = header_.alignment - 1;
    const uint64_t data_begin = (reader_.position() + mask) & ~mask;
    const uint64_t data_bytes = data_begin < file_bytes_ ? file_bytes_ - data_begin : 0;
    for (const Extent& extent : extents_) {
      GgufTensor& tensor = header_.tensors[extent.tensor];
      if (extent.offset > data_bytes || extent.bytes > data_bytes - extent.offset) {
        return Bad("tensor ", Quoted(tensor.name), " at offset ", extent.offset, " of ",
                   extent.bytes, " bytes reaches beyond the ", data_bytes,
                   " data bytes of the file");
      }
      tensor.data = bytes_.subspan(data_begin + extent.offset, extent.bytes);
    }
    std::sort(extents_.begin(), extents_.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    for (size_t i = 1; i < extents_.size(); ++i) {
      const Extent& before = extents_[i - 1];
      if (extents_[i].offset - before.offset < before.bytes) {
        return Bad("tensor ", Quoted(header_.tensors[extents_[i].tensor].name), " overlaps tensor ",
                   Quoted(header_.tensors[before.tensor].name));
      }
    }
    return absl::OkStatus();
  }

  struct Extent {
    uint64_t offset;
    uint64_t bytes;
    size_t tensor;
  };

  const std::string& file_;
  const uint64_t file_bytes_;
  const std::span<const std::byte> bytes_;
  ByteReader reader_;  // Ends at the header limit, so no header longer than that is walked.
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  uint64_t total_bytes_ = 0;
  GgufHeader header_;
  std::vector<Extent> extents_;
  absl::flat_hash_set<std::string_view> names_;
};

}  // namespace

absl::StatusOr<GgufHeader> ParseGgufHeader(const std::string& file,
                                           std::span<const std::byte> bytes) {
  return HeaderParser(file, bytes).Parse();
}

}  // namespace shardline

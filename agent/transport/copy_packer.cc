#include "agent/transport/copy_packer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr int kMaxDimensions = 64;

// Holds products of two numbers of 64 bits.
__extension__ typedef __int128 Wide;
__extension__ typedef unsigned __int128 UnsignedWide;

absl::Status Bad(std::string_view what) {
  return MakeError(Reason::kBadRequest, absl::StrCat("a copy ", absl::string_view(what.data(), what.size())));
}

// Copies that permute or cast speak of single elements; what is contiguous in the source is packed at once all the
// same.
std::vector<v1::Copy> WithLongRuns(std::vector<v1::Copy> copies) {
  for (v1::Copy& copy : copies) {
    while (copy.extents_size() > 0 && CopyBytes(copy).ok() &&
           copy.source_strides(copy.extents_size() - 1) == static_cast<int64_t>(copy.element_bytes())) {
      copy.set_element_bytes(copy.element_bytes() * static_cast<uint64_t>(copy.extents(copy.extents_size() - 1)));
      copy.mutable_extents()->RemoveLast();
      copy.mutable_source_strides()->RemoveLast();
    }
  }
  return copies;
}

}  // namespace

absl::StatusOr<uint64_t> CopyBytes(const v1::Copy& copy) {
  if (copy.extents_size() != copy.source_strides_size() || copy.extents_size() > kMaxDimensions) {
    return Bad("whose extents and strides differ in number");
  }
  UnsignedWide bytes = copy.element_bytes();
  for (int64_t extent : copy.extents()) {
    if (extent < 0) return Bad("with a negative extent");
    bytes *= static_cast<uint64_t>(extent);
    if (bytes > INT64_MAX) return Bad("of 2^63 bytes or more");
  }
  if (bytes > INT64_MAX) return Bad("of 2^63 bytes or more");
  return static_cast<uint64_t>(bytes);
}

absl::Status CheckSource(const v1::Copy& copy, uint64_t buffer_bytes) {
  const auto bytes = CopyBytes(copy);
  if (!bytes.ok()) return bytes.status();
  if (*bytes == 0) return absl::OkStatus();
  Wide low = copy.source_offset(), high = low;
  for (int d = 0; d < copy.extents_size(); ++d) {
    const Wide reach = static_cast<Wide>(copy.extents(d) - 1) * copy.source_strides(d);
    (reach < 0 ? low : high) += reach;
  }
  if (low < 0 || high + copy.element_bytes() > buffer_bytes) return Bad("from outside the round's buffer");
  return absl::OkStatus();
}

void SplitCopy(const v1::Copy& copy, uint64_t max_bytes, std::vector<v1::Copy>& pieces) {
  uint64_t inner = copy.element_bytes();  // bytes of one step of the outermost dimension
  for (int d = 1; d < copy.extents_size(); ++d) inner *= static_cast<uint64_t>(copy.extents(d));
  if (copy.extents_size() == 0) {
    for (uint64_t done = 0; done < copy.element_bytes();) {
      v1::Copy& piece = pieces.emplace_back(copy);
      piece.set_element_bytes(std::min(max_bytes, copy.element_bytes() - done));
      piece.set_source_offset(copy.source_offset() + done);
      piece.set_target_offset(copy.target_offset() + done);
      done += piece.element_bytes();
    }
    return;
  }
  const auto steps = static_cast<uint64_t>(copy.extents(0));
  const uint64_t at_once = std::max<uint64_t>(1, inner == 0 ? steps : max_bytes / inner);
  for (uint64_t done = 0; done < steps;) {
    v1::Copy piece = copy;
    const uint64_t count = std::min(at_once, steps - done);
    const auto moved = [&](uint64_t offset, int64_t stride) {
      return offset + done * static_cast<uint64_t>(stride);  // wraps for a negative stride, as it should
    };
    piece.set_source_offset(moved(copy.source_offset(), copy.source_strides(0)));
    piece.set_target_offset(moved(copy.target_offset(), copy.target_strides(0)));
    done += count;
    if (count > 1 || inner <= max_bytes) {
      piece.set_extents(0, static_cast<int64_t>(count));
      pieces.push_back(std::move(piece));
      continue;
    }
    // One step is too large still: cut within it.
    piece.mutable_extents()->erase(piece.extents().begin());
    piece.mutable_source_strides()->erase(piece.source_strides().begin());
    piece.mutable_target_strides()->erase(piece.target_strides().begin());
    SplitCopy(piece, max_bytes, pieces);
  }
}

absl::StatusOr<std::vector<CopyWindow>> CutIntoWindows(const std::vector<v1::Copy>& copies, uint64_t max_bytes) {
  std::vector<CopyWindow> windows(1);
  std::vector<v1::Copy> pieces;
  for (const v1::Copy& copy : copies) {
    CAIRN_ASSIGN_OR_RETURN(const uint64_t all, CopyBytes(copy));
    if (copy.source_strides_size() != copy.extents_size() || copy.target_strides_size() != copy.extents_size()) {
      return Bad("whose extents and strides differ in number");
    }
    pieces.clear();
    if (all <= max_bytes) {
      pieces.push_back(copy);
    } else {
      SplitCopy(copy, max_bytes, pieces);
    }
    for (v1::Copy& piece : pieces) {
      CAIRN_ASSIGN_OR_RETURN(const uint64_t bytes, CopyBytes(piece));
      if (windows.back().bytes > 0 && windows.back().bytes + bytes > max_bytes) windows.emplace_back();
      windows.back().bytes += bytes;
      windows.back().copies.push_back(std::move(piece));
    }
  }
  return windows;
}

v1::Copy PackedCopy(const v1::Copy& copy, uint64_t source_offset) {
  v1::Copy packed = copy;
  packed.set_source_offset(source_offset);
  int64_t stride = static_cast<int64_t>(copy.element_bytes());
  for (int d = copy.extents_size() - 1; d >= 0; --d) {
    packed.set_source_strides(d, stride);
    stride *= copy.extents(d);
  }
  return packed;
}

CopyPacker::CopyPacker(const char* buffer, std::vector<v1::Copy> copies)
    : buffer_(buffer), copies_(WithLongRuns(std::move(copies))) {
  Begin();
}

// Goes to the first element of a copy that has any.
void CopyPacker::Begin() {
  while (copy_ < copies_.size()) {
    const auto bytes = CopyBytes(copies_[copy_]);
    if (bytes.ok() && *bytes > 0) break;
    ++copy_;
  }
  done_ = 0;
  if (copy_ < copies_.size()) index_.assign(static_cast<size_t>(copies_[copy_].extents_size()), 0);
}

// Goes to the next element. False when the copy has no further.
bool CopyPacker::Advance() {
  done_ = 0;
  for (size_t d = index_.size(); d > 0; --d) {
    if (++index_[d - 1] < copies_[copy_].extents(static_cast<int>(d - 1))) return true;
    index_[d - 1] = 0;
  }
  return false;
}

template <typename Put>
size_t CopyPacker::Pack(size_t max_bytes, const Put& put) {
  size_t packed = 0;
  while (packed < max_bytes && copy_ < copies_.size()) {
    const v1::Copy& copy = copies_[copy_];
    int64_t offset = static_cast<int64_t>(copy.source_offset());
    for (size_t d = 0; d < index_.size(); ++d) offset += index_[d] * copy.source_strides(static_cast<int>(d));
    const uint64_t bytes = std::min<uint64_t>(copy.element_bytes() - done_, max_bytes - packed);
    put(buffer_ + offset + done_, bytes);
    packed += bytes;
    done_ += bytes;
    if (done_ < copy.element_bytes()) break;
    if (!Advance()) {
      ++copy_;
      Begin();
    }
  }
  return packed;
}

std::string CopyPacker::Next(size_t max_bytes) {
  std::string packed;
  (void)Pack(max_bytes, [&](const char* from, size_t bytes) { packed.append(from, bytes); });
  return packed;
}

size_t CopyPacker::Fill(char* to, size_t max_bytes) {
  return Pack(max_bytes, [&](const char* from, size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  });
}

}  // namespace cairn

#include "gpu/copy/transfer.h"

#include <algorithm>
#include <limits>

namespace cairn {
namespace {

// The largest pitch that cuMemcpy2D accepts on all devices.
constexpr int64_t kMostPitch = std::numeric_limits<int32_t>::max();

struct Axis {
  int64_t extent = 0;
  int64_t device_stride = 0;
  int64_t host_stride = 0;
};

class Cutter {
 public:
  Cutter(const DeviceCopy& copy, int64_t most_bytes) : copy_(copy), most_bytes_(most_bytes) {}

  std::vector<DevicePart> Run() {
    std::vector<Axis> axes;
    if (copy_.copy.element_bytes == 0) return {};
    for (const TiledCopy::Dimension& d : copy_.copy.dimensions) {
      if (d.extent == 0) return {};
      if (d.extent == 1) continue;
      const Axis axis = copy_.to_host ? Axis{d.extent, d.source_stride, d.target_stride}
                                      : Axis{d.extent, d.target_stride, d.source_stride};
      (axis.device_stride == 0 ? repeated_ : axes).push_back(axis);
    }
    // Axes are ordered by the device's memory, so that rows are as long as possible.
    std::stable_sort(axes.begin(), axes.end(),
                     [](const Axis& a, const Axis& b) { return a.device_stride > b.device_stride; });
    Cut(std::move(axes), 0, 0, copy_.copy.element_bytes);
    return std::move(parts_);
  }

 private:
  // `device` and `host` are offsets in bytes. `element_bytes` is the size in the source.
  void Cut(std::vector<Axis> axes, int64_t device, int64_t host, int64_t element_bytes) {
    const int64_t element = copy_.copy.is_cast() ? copy_.device_element_bytes() : element_bytes;
    int64_t inner = element;  // bytes of all axes but the first
    for (size_t i = 1; i < axes.size(); ++i) inner *= axes[i].extent;
    if (axes.empty() && element > most_bytes_) {
      for (int64_t at = 0; at < element; at += most_bytes_) {
        Add({}, device + at, host + at, std::min(most_bytes_, element - at));
      }
    } else if (axes.empty() || axes.front().extent * inner <= most_bytes_) {
      Add(axes, device, host, element_bytes);
    } else {
      const Axis outer = axes.front();
      const int64_t step = std::max<int64_t>(1, most_bytes_ / inner);
      for (int64_t at = 0; at < outer.extent; at += step) {
        axes.front() = outer;
        axes.front().extent = std::min(step, outer.extent - at);
        std::vector<Axis> some = axes;
        if (some.front().extent == 1) some.erase(some.begin());
        Cut(std::move(some), device + at * outer.device_stride, host + at * outer.host_stride, element_bytes);
      }
    }
  }

  void Add(const std::vector<Axis>& axes, int64_t device, int64_t host, int64_t element_bytes) {
    DevicePart& part = parts_.emplace_back();
    TiledCopy& copy = part.host;
    copy.source = copy_.to_host ? nullptr : copy_.copy.source + host;
    copy.target = copy_.to_host ? copy_.copy.target + host : nullptr;
    copy.element_bytes = element_bytes;
    copy.casts = copy_.copy.casts;
    part.direct = !copy.is_cast() && repeated_.empty();
    part.bytes = copy.is_cast() ? copy_.device_element_bytes() : element_bytes;
    const int64_t element = part.bytes;
    for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
      part.direct = part.direct && axis->host_stride == part.bytes;
      copy.dimensions.push_back(Both(*axis, part.bytes));
      part.bytes *= axis->extent;
    }
    for (const Axis& axis : repeated_) copy.dimensions.push_back(Both(axis, 0));
    std::reverse(copy.dimensions.begin(), copy.dimensions.end());
    AddRows(axes, device, element, part);
  }

  TiledCopy::Dimension Both(const Axis& axis, int64_t packed_stride) const {
    if (copy_.to_host) return {axis.extent, packed_stride, axis.host_stride};
    return {axis.extent, axis.host_stride, packed_stride};
  }

  void AddRows(const std::vector<Axis>& axes, int64_t device, int64_t element, DevicePart& part) const {
    DeviceRows rows = {.device = copy_.device + static_cast<uint64_t>(device), .row_bytes = element, .pitch = element};
    size_t outer = axes.size();
    while (outer > 0 && axes[outer - 1].device_stride == rows.row_bytes) rows.row_bytes *= axes[--outer].extent;
    rows.pitch = rows.row_bytes;
    if (outer > 0 && axes[outer - 1].device_stride > rows.row_bytes && axes[outer - 1].device_stride <= kMostPitch) {
      rows.rows = axes[--outer].extent;
      rows.pitch = axes[outer].device_stride;
    }
    Repeat(axes, 0, outer, rows, part);
  }

  // Adds the rows for each index of the axes [from, to).
  void Repeat(const std::vector<Axis>& axes, size_t from, size_t to, DeviceRows rows, DevicePart& part) const {
    if (from == to) {
      if (!part.rows.empty()) {
        const DeviceRows& last = part.rows.back();
        rows.packed_offset = last.packed_offset + last.row_bytes * last.rows;
      }
      part.rows.push_back(rows);
      return;
    }
    for (int64_t i = 0; i < axes[from].extent; ++i) {
      Repeat(axes, from + 1, to, rows, part);
      rows.device += static_cast<uint64_t>(axes[from].device_stride);
    }
  }

  const DeviceCopy& copy_;
  const int64_t most_bytes_;
  std::vector<Axis> repeated_;
  std::vector<DevicePart> parts_;
};

}  // namespace

std::vector<DevicePart> PartsOf(const DeviceCopy& copy, int64_t most_bytes) { return Cutter(copy, most_bytes).Run(); }

}  // namespace cairn

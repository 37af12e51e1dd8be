#include "corpus/io/frame_encoder.h"

#include <libdeflate.h>
#include <zstd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <new>

#include "common/base/mutex.h"
#include "common/resources/memory.h"
#include "common/resources/thread.h"

namespace cairn::corpus {
namespace {

constexpr int kGzipLevel = 6;
constexpr int kZstdLevel = 3;

std::string EncodeGzip(std::string_view text) {
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(kGzipLevel), &libdeflate_free_compressor);
  if (compressor == nullptr) throw std::bad_alloc();
  std::string frame(libdeflate_gzip_compress_bound(compressor.get(), text.size()), '\0');
  frame.resize(libdeflate_gzip_compress(compressor.get(), text.data(), text.size(), frame.data(), frame.size()));
  return frame;
}

std::string EncodeZstd(std::string_view text) {
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> context(ZSTD_createCCtx(), &ZSTD_freeCCtx);
  if (context == nullptr) throw std::bad_alloc();
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kZstdLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1);
  std::string frame(ZSTD_compressBound(text.size()), '\0');
  // The buffer has the size of the bound, so this fails only for lack of memory.
  const size_t size = ZSTD_compress2(context.get(), frame.data(), frame.size(), text.data(), text.size());
  if (ZSTD_isError(size)) throw std::bad_alloc();
  frame.resize(size);
  return frame;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> EncodeFrames(Compression compression, std::span<const std::string_view> texts,
                                                      int threads) {
  std::vector<std::string> frames(texts.size());
  std::atomic<size_t> next = 0;
  Mutex mutex;
  absl::Status error;
  RunOnThreads(std::min<int>(threads, static_cast<int>(texts.size())), [&] {
    const absl::Status status = WithMemory("to compress the output", [&] {
      for (size_t i = next++; i < texts.size(); i = next++) {
        frames[i] = compression == Compression::kGzip ? EncodeGzip(texts[i]) : EncodeZstd(texts[i]);
      }
      return absl::OkStatus();
    });
    if (status.ok()) return;
    next = texts.size();
    MutexLock lock(mutex);
    error.Update(status);
  });
  if (!error.ok()) return error;
  return frames;
}

}  // namespace cairn::corpus

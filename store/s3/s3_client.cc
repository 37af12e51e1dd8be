#include "store/s3/s3_client.h"

#include <aws/common/byte_buf.h>
#include <aws/common/date_time.h>

#include <algorithm>
#include <random>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/base/crc32c.h"
#include "common/base/random_id.h"
#include "common/status/reason.h"
#include "common/status/status.h"

namespace cairn {
namespace {

constexpr absl::Duration kHurriedPatience = absl::Seconds(2);
// An object whose bytes do not have the checksum of the store is read so many times.
constexpr int kTriesOfMismatch = 3;
// Statuses of HTTP.
constexpr int kPartialContent = 206;
constexpr int kRangeNotSatisfiable = 416;
// A request that begins while the store has not answered for long is given up after this.
constexpr absl::Duration kPatienceInOutage = absl::Seconds(10);
// Listings have at most so many names, and pages without names; those of uploads so many pages of 1,000.
constexpr size_t kMostListed = 10'000'000;
constexpr size_t kMostEmptyPages = 100;
constexpr size_t kMostUploadPages = 1'000;
constexpr char kWriterHeader[] = "x-amz-meta-cairn-writer";
constexpr size_t kKeysInDeletion = 1000;

// As the header x-amz-checksum-crc32c has it.
std::string Base64Crc(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes.data(), bytes.size());
  const char big_endian[] = {static_cast<char>(crc >> 24), static_cast<char>(crc >> 16), static_cast<char>(crc >> 8),
                             static_cast<char>(crc)};
  return absl::Base64Escape(absl::string_view(big_endian, sizeof(big_endian)));
}

std::optional<absl::Time> TimeOf(const std::string& text) {
  aws_date_time time;
  const aws_byte_cursor cursor = aws_byte_cursor_from_array(text.data(), text.size());
  if (aws_date_time_init_from_str_cursor(&time, &cursor, AWS_DATE_FORMAT_AUTO_DETECT) != AWS_OP_SUCCESS) {
    return std::nullopt;
  }
  return absl::FromUnixMillis(static_cast<int64_t>(aws_date_time_as_millis(&time)));
}

// A time that is not known is no reason to remove anything.
absl::Time TimeOrNever(const std::string& text) { return TimeOf(text).value_or(absl::InfiniteFuture()); }

bool IsGood(int status) { return status >= 200 && status < 300; }
bool IsDenied(int status) { return status == 401 || status == 403; }

// Says what an error of the store means, by its status of HTTP, or by the code of an error for one key of many. `bare`:
// the store has answered without words.
Reason ReasonFor(int status, std::string_view code, bool bare = false) {
  if (code == "NoSuchBucket") return Reason::kRootMissing;
  // Other answers with this status are not about a key: of a proxy, or of an upload that never was a file.
  if (status == 404 && (code == "NoSuchKey" || bare)) return Reason::kFileMissing;
  if (IsDenied(status) || code == "AccessDenied") return Reason::kStorageReadOnly;
  if (status == 507 || code == "QuotaExceeded") return Reason::kNoSpace;
  return Reason::kStorageError;
}

double Random() {
  thread_local std::minstd_rand engine(static_cast<unsigned>(RandomId()));
  return std::uniform_real_distribution<double>(0, 1)(engine);
}

// Says whether a whole object has the checksum that the store gave along; an upload of parts has another kind.
bool HasItsChecksum(const S3Answer& answer) {
  if (answer.status == kPartialContent) return true;  // the checksum is of the whole
  const std::string crc = answer.Header("x-amz-checksum-crc32c");
  return crc.empty() || crc.find('-') != crc.npos || crc == Base64Crc(answer.body);
}

}  // namespace

absl::StatusOr<std::unique_ptr<S3Client>> S3Client::Open(const S3Address& address, const Clock& clock,
                                                         const Options& options) {
  CAIRN_ASSIGN_OR_RETURN(auto wire, S3Wire::Open(address, options.wire));
  return std::unique_ptr<S3Client>(new S3Client(address, clock, options, std::move(wire)));
}

void S3Client::SetHurried(bool hurried) {
  MutexLock lock(mutex_);
  hurried_ = hurried;
  changed_.NotifyAll();
}

absl::Duration S3Client::PatienceAt(absl::Time begun) {
  MutexLock lock(mutex_);
  if (last_answer_ == absl::InfinitePast()) return options_.first_patience;
  const bool outage = failing_since_ < begun - options_.patience;
  return outage ? std::min(options_.patience, kPatienceInOutage) : options_.patience;
}

void S3Client::BackOff(int attempt, const std::atomic<bool>* stop) {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  const absl::Time until = clock_.SteadyNow() + S3BackOff(attempt, Random());
  for (absl::Time now = clock_.SteadyNow(); now < until && !hurried_; now = clock_.SteadyNow()) {
    if (stop != nullptr && *stop) return;
    changed_.WaitFor(mutex_, stop == nullptr ? until - now : std::min(until - now, kLook));
  }
}

void S3Client::Enter() {
  MutexLock lock(mutex_);
  while (under_way_ >= window_.limit()) changed_.Wait(mutex_);
  ++under_way_;
}

void S3Client::Leave(S3Verdict verdict, int status) {
  MutexLock lock(mutex_);
  --under_way_;
  if (verdict == S3Verdict::kSlowDown) window_.ToldToSlowDown(clock_.SteadyNow());
  if (verdict == S3Verdict::kFinal && status != 0 && !IsDenied(status)) {
    window_.Succeeded();
    last_answer_ = clock_.SteadyNow();
    failing_since_ = absl::InfiniteFuture();
  } else {
    failing_since_ = std::min(failing_since_, clock_.SteadyNow());
  }
  changed_.NotifyAll();
}

bool S3Client::Reply::done() const { return final && IsGood(answer.status) && answer.refused.ok() && code.empty(); }

S3Client::Reply S3Client::Ask(const S3Request& request) {
  const absl::Time begun = clock_.SteadyNow();
  const absl::Duration patience = PatienceAt(begun);
  Reply reply;
  int without_credentials = 0, mismatched = 0;  // tries
  for (int attempt = 1;; ++attempt) {
    Enter();
    S3Answer& answer = reply.answer;
    answer = wire_->Send(request);
    reply.xml.reset();
    reply.code.clear();
    reply.message.clear();
    if (request.content && IsGood(answer.status)) {
      // What differs each time was not damaged on its way. The caller judges it by its own checksum.
      if (!HasItsChecksum(answer) && ++mismatched < kTriesOfMismatch) {
        answer.status = 0;
        answer.trouble = "what came does not have the checksum of the object";
      }
    } else if (auto xml = ParseS3Xml(answer.body); xml.ok()) {
      reply.xml = *std::move(xml);
      // Some errors come behind a good status, because the store had begun to answer.
      if (reply.xml->name == "Error") {
        reply.code = reply.xml->Text("Code");
        reply.message = reply.xml->Text("Message");
      }
    }
    const S3Verdict verdict = answer.refused.ok() ? JudgeS3Answer(answer.status, reply.code) : S3Verdict::kFinal;
    Leave(verdict, answer.status);
    reply.final = verdict == S3Verdict::kFinal;
    // An answer that was refused does not say what the store has done.
    reply.in_doubt |= answer.sent && (!reply.final || !answer.refused.ok());
    if (reply.final || (request.stop != nullptr && *request.stop)) return reply;
    without_credentials = answer.no_credentials ? without_credentials + 1 : 0;
    const absl::Time now = clock_.SteadyNow();
    MutexLock lock(mutex_);
    const bool answered = last_answer_ != absl::InfinitePast();
    // Nobody has ever answered there, or taken the credentials, so these are rather wrong than something is disturbed.
    const bool unreachable = answer.status == 0 && now - begun > options_.connect_patience && !reply.in_doubt;
    if (!answered && (without_credentials >= 3 || unreachable)) return reply;
    const absl::Duration most = hurried_ ? kHurriedPatience : patience;
    if (now - std::max(begun, last_answer_) > most || now - begun > 10 * most) return reply;
    BackOff(attempt, request.stop);
  }
}

std::string S3Client::NameOf(std::string_view key) const {
  return absl::StrCat("s3://", address_.bucket, "/", absl::string_view(key.data(), key.size()));
}

absl::Status S3Client::ErrorOf(const S3Request& request, const Reply& reply) const {
  const S3Answer& answer = reply.answer;
  const std::string file = NameOf(request.key);
  const std::string id = answer.Header("x-amz-request-id");
  // What is asked of a bucket says itself of which names.
  std::string text = absl::StrCat(request.method, " ", file, request.key.empty() ? "?" : "",
                                  request.key.empty() ? request.query : "", ": ");
  if (!answer.refused.ok()) {
    absl::StrAppend(&text, answer.refused.message());
    return MakeError(ReasonOf(answer.refused).value_or(Reason::kStorageError), text, {{"file", file}});
  }
  absl::StrAppend(&text, answer.status == 0
                             ? answer.trouble
                             : absl::StrCat("HTTP ", answer.status, " ", reply.code, " ", reply.message));
  if (!id.empty()) absl::StrAppend(&text, " (request ", id, ")");
  ErrorMetadata metadata = {{"file", file}, {"request", id}};
  const Reason reason = answer.no_credentials ? Reason::kStorageReadOnly
                                              : ReasonFor(answer.status, reply.code, /*bare=*/request.method == "HEAD");
  const std::string region = answer.Header("x-amz-bucket-region");
  if (answer.no_credentials) {
    metadata.emplace_back("next", NextWithoutCredentials(FromEnvironment));
  } else if (answer.status == 0) {
    metadata.emplace_back(
        "next",
        absl::StrCat(address_.endpoint_is_named ? "Check the endpoint (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or "
                                                  "?endpoint=; https only if the store speaks it)"
                                                : "No AWS_ENDPOINT_URL is set, so Amazon is asked: set it if the "
                                                  "store is another one; else check the region",
                     ", proxy and network: the request went to ", address_.HostHeader(), "."));
  } else if (reason == Reason::kRootMissing) {
    metadata.emplace_back("next", "Correct the name of the bucket, or make the bucket.");
  } else if (answer.status == 404 && reason == Reason::kStorageError) {
    metadata.emplace_back("next", NextIfNoStore());
  } else if (reply.code == "RequestTimeTooSkewed") {
    metadata.emplace_back(
        "next", absl::StrCat("Set the clock of this machine: by the store's it is ", answer.Header("date"), "."));
  } else if (reason == Reason::kStorageReadOnly) {
    metadata.emplace_back("next", "Look at the credentials, and at what the policy of the bucket allows them.");
  } else if (reason == Reason::kStorageError && !region.empty() && region != address_.region) {
    absl::StrAppend(&text, ": the bucket is in the region ", region, ", and the request went to ", address_.region);
    metadata.emplace_back("next", absl::StrCat("Set AWS_REGION=", region, "."));
  }
  return MakeError(reason, text, metadata);
}

std::string S3Client::NextIfNoStore() const {
  return absl::StrCat("Look whether a proxy has answered in the store's place: the request went to ",
                      address_.HostHeader(), ".");
}

absl::Status S3Client::Lacks(const S3Request& request, std::string_view what) const {
  return MakeError(Reason::kStorageError,
                   absl::StrCat(request.method, " ", NameOf(request.key), ": the store's answer lacks ",
                                absl::string_view(what.data(), what.size())),
                   {{"file", NameOf(request.key)}, {"next", NextIfNoStore()}});
}

absl::StatusOr<S3Xml> S3Client::AskForXml(const S3Request& request, std::string_view name) {
  Reply reply = Ask(request);
  if (!reply.done()) return ErrorOf(request, reply);
  if (!reply.xml.has_value() || reply.xml->name != name) return Lacks(request, name);
  return *std::move(reply.xml);
}

absl::StatusOr<Put> S3Client::WhatStands(const S3Request& request, const Reply& reply, const std::string& writer) {
  const auto standing = Head(request.key);
  if (standing.ok()) return standing->writer == writer ? Put::kCreated : Put::kExists;
  return HasReason(standing.status(), Reason::kFileMissing) ? ErrorOf(request, reply) : standing.status();
}

PutResult S3Client::PutObject(const std::string& key, std::string_view bytes, bool if_absent) {
  const std::string writer = RandomToken(16);
  S3Request request = {"PUT", key, "", {{"x-amz-checksum-crc32c", Base64Crc(bytes)}, {kWriterHeader, writer}}, bytes};
  if (if_absent) request.headers.emplace_back("If-None-Match", "*");
  const Reply reply = Ask(request);
  if (reply.done()) return {Put::kCreated};
  if (!reply.in_doubt) {
    if (reply.answer.status == 412) return {Put::kExists};
    return {ErrorOf(request, reply)};
  }
  // An earlier try may have put it. The word tells the own object from another one with equal bytes.
  const auto standing = WhatStands(request, reply, writer);
  if (!standing.ok()) return {standing.status(), /*in_doubt=*/true};
  if (*standing == Put::kCreated || if_absent) return {*standing};
  return {ErrorOf(request, reply), /*in_doubt=*/true};
}

absl::StatusOr<S3Object> S3Client::ObjectIn(const S3Request& request, const Reply& reply) const {
  if (!reply.done()) return ErrorOf(request, reply);
  const S3Answer& answer = reply.answer;
  const auto modified = TimeOf(answer.Header("last-modified"));
  const auto now = TimeOf(answer.Header("date"));
  S3Object object;
  if (!absl::SimpleAtoi(answer.Header("content-length"), &object.bytes)) return Lacks(request, "Content-Length");
  if (!modified.has_value()) return Lacks(request, "Last-Modified");
  if (!now.has_value()) return Lacks(request, "Date");
  object.modified = *modified;
  object.now = *now;
  object.etag = answer.Header("etag");
  object.writer = answer.Header(kWriterHeader);
  return object;
}

absl::StatusOr<S3Object> S3Client::Head(const std::string& key) {
  const S3Request request = {"HEAD", key};
  return ObjectIn(request, Ask(request));
}

absl::StatusOr<S3Content> S3Client::Fetch(const std::string& key, uint64_t max_bytes) {
  S3Request request = {"GET", key, "", {{"x-amz-checksum-mode", "ENABLED"}}};
  request.content = true;
  request.max_bytes = max_bytes;
  Reply reply = Ask(request);
  CAIRN_ASSIGN_OR_RETURN(S3Object object, ObjectIn(request, reply));
  return S3Content{std::move(object), std::move(reply.answer.body)};
}

absl::StatusOr<S3Content> S3Client::FetchBegin(const std::string& key, uint64_t most) {
  S3Request request = {"GET", key, "", {{"Range", absl::StrCat("bytes=0-", most - 1)}}};
  request.content = true;
  request.max_bytes = most;
  Reply reply = Ask(request);
  // An empty object has no first byte.
  if (reply.final && reply.answer.status == kRangeNotSatisfiable) {
    CAIRN_ASSIGN_OR_RETURN(S3Object object, Head(key));
    return S3Content{std::move(object), ""};
  }
  CAIRN_ASSIGN_OR_RETURN(S3Object object, ObjectIn(request, reply));
  if (reply.answer.status == kPartialContent) {
    // "bytes 0-4095/1000000"
    const std::string range = reply.answer.Header("content-range");
    const size_t slash = range.find('/');
    if (slash == range.npos || !absl::SimpleAtoi(range.substr(slash + 1), &object.bytes)) {
      return Lacks(request, "Content-Range");
    }
  }
  if (reply.answer.body.size() != std::min(most, object.bytes)) return Lacks(request, "all of the range");
  return S3Content{std::move(object), std::move(reply.answer.body)};
}

absl::Status S3Client::Get(const std::string& key, const std::string& etag, uint64_t offset, uint64_t size, char* to,
                           const std::atomic<bool>* stop) {
  if (size == 0) return absl::OkStatus();
  S3Request request = {"GET", key, "", {{"Range", absl::StrCat("bytes=", offset, "-", offset + size - 1)}}};
  if (!etag.empty()) request.headers.emplace_back("If-Match", etag);
  request.content = true;
  request.to = to;
  request.max_bytes = size;
  request.stop = stop;
  const Reply reply = Ask(request);
  const S3Answer& answer = reply.answer;
  if (reply.final && answer.status == 412) {
    return MakeError(Reason::kBadForeignFile, absl::StrCat(NameOf(key), " was written anew while it was read"),
                     {{"file", NameOf(key)}});
  }
  const bool ends_before = answer.status == kRangeNotSatisfiable || (reply.done() && answer.received < size);
  if (reply.final && ends_before) {
    return MakeError(Reason::kFileTruncated, absl::StrCat(NameOf(key), " ends before byte ", offset + size),
                     {{"file", NameOf(key)}});
  }
  return reply.done() ? absl::OkStatus() : ErrorOf(request, reply);
}

absl::StatusOr<std::vector<S3Client::Listed>> S3Client::List(const std::string& prefix, bool by_directory,
                                                             const std::string& after, size_t most) {
  std::vector<Listed> listed;
  std::string token, last;
  size_t empty_pages = 0;
  while (listed.size() < most) {
    S3Request request = {"GET", "",
                         absl::StrCat("list-type=2&max-keys=", std::min<size_t>(1000, most - listed.size()))};
    if (by_directory) absl::StrAppend(&request.query, "&delimiter=%2F");
    if (!prefix.empty()) absl::StrAppend(&request.query, "&prefix=", PercentEncoded(prefix, /*slash=*/true));
    if (!after.empty()) absl::StrAppend(&request.query, "&start-after=", PercentEncoded(after, /*slash=*/true));
    if (!token.empty()) absl::StrAppend(&request.query, "&continuation-token=", PercentEncoded(token, /*slash=*/true));
    CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, AskForXml(request, "ListBucketResult"));
    const auto before = static_cast<ptrdiff_t>(listed.size());
    for (const auto& [name, texts] : xml.elements) {
      Listed one;
      one.prefix = name == "CommonPrefixes";
      one.name = S3Xml::TextOf(texts, one.prefix ? "Prefix" : "Key");
      if (!one.prefix && !absl::SimpleAtoi(S3Xml::TextOf(texts, "Size"), &one.bytes)) {
        return Lacks(request, absl::StrCat("the size of ", NameOf(one.name)));
      }
      one.etag = S3Xml::TextOf(texts, "ETag");
      if (!one.name.starts_with(prefix)) continue;
      if (one.prefix && (one.name.size() <= prefix.size() || !one.name.ends_with('/'))) {
        return Lacks(request, "the name of a directory");
      }
      listed.push_back(std::move(one));
    }
    const auto by_name = [](const Listed& a, const Listed& b) { return a.name < b.name; };
    const auto page = listed.begin() + before;
    std::sort(page, listed.end(), by_name);
    // Else names would be missed or come twice, or the listing would never end.
    if (page != listed.end() ? page->name <= last : ++empty_pages > kMostEmptyPages) {
      return Lacks(request, "names behind those before");
    }
    if (page != listed.end()) last = listed.back().name;
    if (listed.size() > kMostListed) return Lacks(request, "an end");
    const std::string truncated = xml.Text("IsTruncated");
    if (truncated == "false") break;
    token = xml.Text("NextContinuationToken");
    if (truncated != "true" || token.empty()) return Lacks(request, "IsTruncated, or the token of what follows");
  }
  const auto same = [](const Listed& a, const Listed& b) { return a.name == b.name; };
  listed.erase(std::unique(listed.begin(), listed.end(), same), listed.end());
  return listed;
}

absl::Status S3Client::DeleteSome(const std::vector<std::string>& keys, std::vector<std::string>& refused,
                                  absl::Status& error) {
  const std::string body = DeletionXml(keys);
  const S3Request request = {
      "POST", "", "delete", {{"x-amz-checksum-crc32c", Base64Crc(body)}, {"Content-Type", "application/xml"}}, body};
  const Reply reply = Ask(request);
  // Some stores do not know this request, and Ceph 16 allows it only to those who may delete everything.
  if (reply.final && (IsDenied(reply.answer.status) || reply.code == "NotImplemented")) {
    for (const std::string& key : keys) {
      const S3Request single = {"DELETE", key};
      const Reply deleted = Ask(single);
      if (!deleted.done() && !(deleted.final && deleted.answer.status == 404)) return ErrorOf(single, deleted);
    }
    return absl::OkStatus();
  }
  if (!reply.done()) return ErrorOf(request, reply);
  if (!reply.xml.has_value() || reply.xml->name != "DeleteResult") return Lacks(request, "DeleteResult");
  for (const auto& [name, texts] : reply.xml->elements) {
    const std::string code = S3Xml::TextOf(texts, "Code");
    if (name != "Error" || code == "NoSuchKey") continue;
    const std::string key = S3Xml::TextOf(texts, "Key");
    error = MakeError(ReasonFor(200, code),
                      absl::StrCat("delete ", NameOf(key), ": ", code, " ", S3Xml::TextOf(texts, "Message")),
                      {{"file", NameOf(key)}});
    if (JudgeS3Answer(200, code) == S3Verdict::kFinal) return error;
    refused.push_back(key);
  }
  return absl::OkStatus();
}

absl::Status S3Client::Delete(const std::vector<std::string>& keys) {
  const absl::Time begun = clock_.SteadyNow();
  std::vector<std::string> left = keys;
  for (int attempt = 1; !left.empty(); ++attempt) {
    std::vector<std::string> refused;
    absl::Status error;
    for (size_t begin = 0; begin < left.size(); begin += kKeysInDeletion) {
      const size_t end = std::min(left.size(), begin + kKeysInDeletion);
      const auto first = left.begin();
      CAIRN_RETURN_IF_ERROR(
          DeleteSome({first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end)}, refused, error));
    }
    if (!refused.empty() && clock_.SteadyNow() - begun > options_.patience) return error;
    if (!refused.empty()) {
      MutexLock lock(mutex_);
      BackOff(attempt, nullptr);
    }
    left = std::move(refused);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> S3Client::BeginUpload(const std::string& key, const std::string& writer,
                                                  const std::atomic<bool>* stop) {
  // A try whose answer was lost leaves an upload without parts, which RemoveUnfinished finds.
  S3Request request = {"POST", key, "uploads", {{"x-amz-checksum-algorithm", "CRC32C"}, {kWriterHeader, writer}}};
  request.stop = stop;
  CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, AskForXml(request, "InitiateMultipartUploadResult"));
  if (std::string id = xml.Text("UploadId"); !id.empty()) return id;
  return Lacks(request, "the id of the upload");
}

absl::StatusOr<S3Part> S3Client::PutPart(const std::string& key, const std::string& upload, int number,
                                         std::string_view bytes, const std::atomic<bool>* stop) {
  S3Part part = {number, "", Base64Crc(bytes)};
  S3Request request = {"PUT",
                       key,
                       absl::StrCat("partNumber=", number, "&uploadId=", PercentEncoded(upload, /*slash=*/true)),
                       {{"x-amz-checksum-crc32c", part.crc32c}},
                       bytes};
  request.stop = stop;
  const Reply reply = Ask(request);
  if (!reply.done()) return ErrorOf(request, reply);
  part.etag = reply.answer.Header("etag");
  if (part.etag.empty()) return Lacks(request, "an ETag");
  return part;
}

absl::StatusOr<Put> S3Client::Complete(const std::string& key, const std::string& upload,
                                       const std::vector<S3Part>& parts, const std::string& writer, bool if_absent) {
  const std::string body = CompletionXml(parts);
  S3Request request = {"POST",
                       key,
                       absl::StrCat("uploadId=", PercentEncoded(upload, /*slash=*/true)),
                       {{"Content-Type", "application/xml"}},
                       body};
  if (if_absent) request.headers.emplace_back("If-None-Match", "*");
  const Reply reply = Ask(request);
  const bool said = reply.xml.has_value() && reply.xml->name == "CompleteMultipartUploadResult";
  if (reply.done() && said) return Put::kCreated;
  if (reply.final && !reply.done() && !reply.in_doubt && reply.answer.status != 412) return ErrorOf(request, reply);
  // An earlier try may have completed it; then the upload is gone, or the key is taken by its object.
  return WhatStands(request, reply, writer);
}

absl::Status S3Client::Abort(const std::string& key, const std::string& upload, const std::atomic<bool>* stop) {
  S3Request request = {"DELETE", key, absl::StrCat("uploadId=", PercentEncoded(upload, /*slash=*/true))};
  request.stop = stop;
  const Reply reply = Ask(request);
  if (reply.done() || (reply.final && reply.answer.status == 404)) return absl::OkStatus();
  return ErrorOf(request, reply);
}

absl::StatusOr<std::vector<S3Client::Upload>> S3Client::Uploads(const std::string& prefix) {
  std::vector<Upload> uploads;
  std::pair<std::string, std::string> marker;  // of the key, and of its upload
  for (size_t pages = 0; pages < kMostUploadPages; ++pages) {
    S3Request request = {"GET", "", "uploads"};
    if (!prefix.empty()) absl::StrAppend(&request.query, "&prefix=", PercentEncoded(prefix, /*slash=*/true));
    if (!marker.first.empty()) {
      absl::StrAppend(&request.query, "&key-marker=", PercentEncoded(marker.first, /*slash=*/true),
                      "&upload-id-marker=", PercentEncoded(marker.second, /*slash=*/true));
    }
    CAIRN_ASSIGN_OR_RETURN(const S3Xml xml, AskForXml(request, "ListMultipartUploadsResult"));
    for (const auto& [name, texts] : xml.elements) {
      Upload upload = {S3Xml::TextOf(texts, "Key"), S3Xml::TextOf(texts, "UploadId"),
                       TimeOrNever(S3Xml::TextOf(texts, "Initiated"))};
      if (upload.key.starts_with(prefix)) uploads.push_back(std::move(upload));
    }
    const std::string truncated = xml.Text("IsTruncated");
    if (truncated == "false") return uploads;
    std::pair next(xml.Text("NextKeyMarker"), xml.Text("NextUploadIdMarker"));
    if (truncated != "true" || next.first.empty() || next.first < marker.first || next == marker) {
      return Lacks(request, "IsTruncated, or the marker of what follows");
    }
    marker = std::move(next);
  }
  return Lacks({"GET", "", "uploads"}, "an end");
}

}  // namespace cairn

#include "coordinator/server/admission.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "common/status/reason.h"
#include "common/status/retry_delay.h"

namespace cairn {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();
using Places = std::vector<std::shared_ptr<Admission::Place>>;

// Takes calls until one is refused. Returns the refusal.
absl::Status Fill(Admission& admission, uint64_t bytes, Places& places) {
  for (int i = 0; i < 1'000'000; ++i) {
    auto place = admission.Enter(bytes, kNow);
    if (!place.ok()) return place.status();
    places.push_back(*std::move(place));
  }
  return absl::OkStatus();
}

void Teach(Admission& admission, absl::Duration took) {
  for (int i = 0; i < 1000; ++i) (*admission.Enter(0, kNow))->Took(took);
}

TEST(AdmissionTest, Enter_LineIsLongerThanThePatience_IsRefusedForAsLong) {
  Admission admission(2);
  Teach(admission, absl::Milliseconds(20));
  Places places;
  const absl::Status refused = Fill(admission, 1, places);
  EXPECT_TRUE(HasReason(refused, Reason::kOverloaded)) << refused;
  EXPECT_NEAR(static_cast<double>(places.size()), 200, 2);  // 2 s of 10 ms each
  EXPECT_GE(RetryDelayOf(refused), Admission::kPatience);
  EXPECT_LE(RetryDelayOf(refused), Admission::kPatience * 1.1);
}

TEST(AdmissionTest, Enter_RefusedCallers_GetTurnsOneAfterTheOther) {
  Admission admission(2);
  Teach(admission, absl::Milliseconds(20));
  Places places;
  absl::Duration last = *RetryDelayOf(Fill(admission, 1, places));
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration next = *RetryDelayOf(admission.Enter(1, kNow).status());
    EXPECT_GE(next, last);
    last = next;
  }
  EXPECT_GT(last, absl::Seconds(10)) << "1,000 calls of 10 ms each";
  for (int i = 0; i < 10'000; ++i) last = *RetryDelayOf(admission.Enter(1, kNow).status());
  EXPECT_EQ(last, Admission::kLongestDelay);
}

TEST(AdmissionTest, Enter_LineHasEnded_IsTakenAgain) {
  Admission admission(1);
  Teach(admission, absl::Milliseconds(20));
  Places places;
  Fill(admission, 1, places).IgnoreError();
  places.resize(places.size() / 2);
  EXPECT_TRUE(admission.Enter(1, kNow).ok());
}

TEST(AdmissionTest, Enter_TooManyBytes_IsRefused) {
  Admission admission(8);
  Places places;
  const absl::Status refused = Fill(admission, Admission::kMaxBytes / 10, places);
  EXPECT_TRUE(HasReason(refused, Reason::kOverloaded)) << refused;
  EXPECT_EQ(places.size(), 10u);
  EXPECT_GE(RetryDelayOf(refused), Admission::kShortestDelay);
  places.clear();
  EXPECT_TRUE(admission.Enter(2 * Admission::kMaxBytes, kNow).ok()) << "alone, any call is taken";
}

TEST(AdmissionTest, Enter_OneCallTookVeryLong_DoesNotRefuseTheNext) {
  Admission admission(2);
  (*admission.Enter(0, kNow))->Took(absl::Hours(1));
  Places places;
  for (int i = 0; i < 50; ++i) {
    auto place = admission.Enter(1, kNow);
    ASSERT_TRUE(place.ok()) << place.status();
    places.push_back(*std::move(place));
  }
}

}  // namespace
}  // namespace cairn

#include "coordinator/alarms/find_alarms.h"

#include <gtest/gtest.h>

#include "coordinator/alarms/testing/training.h"

namespace cairn {
namespace {

using FindAlarmsTest = AlarmsTest;

TEST_F(FindAlarmsTest, AQuietTraining) { Go(60); }

}  // namespace
}  // namespace cairn

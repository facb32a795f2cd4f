package golden;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import java.beans.Introspector;
import java.beans.PropertyDescriptor;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/** Writes the settings that a broker has where nobody sets them. Argument: the file. */
public final class Defaults {
    private static final Set<String> NAMES = Set.of(
        "accessMessageInMemoryMaxRatio", "brokerRole", "cleanFileForciblyEnable", "cleanResourceInterval", "deleteWhen",
        "diskMaxUsedSpaceRatio", "fileReservedTime", "flushCommitLogLeastPages", "flushCommitLogThoroughInterval", "flushDiskType",
        "flushIntervalCommitLog", "haHousekeepingInterval", "haListenPort", "haSendHeartbeatInterval", "haTransferBatchSize",
        "mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "messageDelayLevel",
        "registerNameServerPeriod", "slaveReadEnable", "maxMsgsNumBatch", "syncFlushTimeout", "intervalCommitLog");

    public static void main(String[] args) throws Exception {
        TreeMap<String, String> found = new TreeMap<>();
        for (Object config : new Object[] {new MessageStoreConfig(), new BrokerConfig()}) {
            for (PropertyDescriptor property : Introspector.getBeanInfo(config.getClass()).getPropertyDescriptors()) {
                if (NAMES.contains(property.getName()) && property.getReadMethod() != null) {
                    found.put(property.getName(), String.valueOf(property.getReadMethod().invoke(config)));
                }
            }
        }
        String text = JSON.toJSONString(found, SerializerFeature.MapSortField);
        Files.write(Path.of(args[0]), text.getBytes(StandardCharsets.UTF_8));
    }
}

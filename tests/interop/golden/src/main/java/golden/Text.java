package golden;

import java.nio.charset.StandardCharsets;
import java.util.Random;

/** Text-like bodies of an exact size: the same seed gives the same bytes on every machine, and they compress well. */
final class Text {
    private static final String[] WORDS = {
        "the", "broker", "wrote", "order", "payment", "accepted", "shipped", "to", "warehouse", "seven", "customer", "paid",
        "invoice", "returned", "late", "parcel", "of", "and", "queue", "offset", "moved", "at", "noon", "Grüße", "naïve", "привет",
        "消息", "注文", "🚀", "ελλάδα",
    };
    private final String[] sentences = new String[48];
    private final Random random;

    Text(long seed) {
        random = new Random(seed);
        for (int i = 0; i < sentences.length; i++) {
            StringBuilder sentence = new StringBuilder();
            for (int n = 6 + random.nextInt(14); n > 0; n--) {
                sentence.append(WORDS[random.nextInt(WORDS.length)]).append(n > 1 ? ' ' : '.');
            }
            sentences[i] = sentence.append('\n').toString();
        }
    }

    Random random() {
        return random;
    }

    /** Returns UTF-8 of exactly {@code size} bytes; a character that would be cut gives way to dots. */
    byte[] body(int size) {
        StringBuilder text = new StringBuilder();
        int bytes = 0;
        while (bytes < size) {
            String sentence = sentences[random.nextInt(sentences.length)];
            text.append(sentence);
            bytes += sentence.getBytes(StandardCharsets.UTF_8).length;
        }
        byte[] whole = text.toString().getBytes(StandardCharsets.UTF_8);
        byte[] body = java.util.Arrays.copyOf(whole, size);
        int end = size;
        if (end < whole.length) {
            while (end > 0 && (whole[end] & 0xC0) == 0x80) {
                end--;
            }
        }
        java.util.Arrays.fill(body, end, size, (byte) '.');
        return body;
    }
}

"""Verdicts on statements: supported, contradicted, not found, not checkable."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazyrag import CitationManager, Hit
from lazyrag.errors import ConfigError, GenerationError
from lazyrag.generation import chat_judge

BRIDGE = (
    "The old bridge over the Arl was built between 1843 and 1850 by Ada Holm. It is 1,800 metres"
    " long and cost 2.5 million crowns. The council did not approve the toll. In March 1912 the"
    " northern tower was closed, because traffic had increased. Karl Lund sold the ferry to Ada"
    " Holm for 40,000 crowns."
)
TEA = (
    "绿茶用80度的水泡两分钟。红茶的产量在1998年增加到350万吨。合作社没有批准新的价格。"
    "李明在杭州创办了第一家茶厂，厂里有1200名工人。"
)


def check(text, *sources, indices=(1,), judge=None):
    """The statement of an answer of one sentence that cites some of its sources."""
    hits = [Hit("n", source, 1.0) for source in sources]
    answer = text + "".join(f"[{index}]" for index in indices)
    [statement] = CitationManager(judge).resolve(answer, hits).statements
    return statement


@pytest.mark.parametrize(
    "text",
    [
        "The bridge over the Arl is 1,800 metres long.",
        "The bridge is 1.8 km long.",
        "Ada Holm built the bridge from 1843 to 1850.",
        "The toll was not approved by the council.",
        "The ferry was sold to Ada Holm by Karl Lund.",
        "The bridge is nearly 2 km long.",
    ],
)
def test_supported(text):
    """Paraphrases, other units, the passive voice and rounding change nothing."""
    statement = check(text, BRIDGE)
    assert (statement.verdict, statement.findings) == ("supported", ())
    assert statement.quote == BRIDGE[slice(*statement.quote_span)]


def test_a_quotation_is_supported():
    """Whatever it looks like: the same words without marks are compared by the rules."""
    source = "- Times are ISO 8601 texts,\n  such as 2008-09-15T15:53:00+05:00, in every response"
    quoted = "“Times are ISO 8601 texts, such as 2008-09-15T15:53:00+05:00”"
    assert check(quoted, source).verdict == "supported"
    assert check(quoted.replace("2008", "2009"), source).verdict != "supported"


TEAS = "| Tea | Price | Share |\n|---|---|---|\n| green | 75 | 12% |\n| black | ¥88 | 30% |\n"


@pytest.mark.parametrize(
    ("text", "is_supported"),
    [
        ("| black | ¥88 | 30% |", True),
        ("black | ¥88 | 30%", True),
        ("| black | ¥89 | 30% |", False),
    ],
)
def test_a_row_of_a_table_is_supported_as_it_is(text, is_supported):
    """Other rows have other numbers."""
    assert (check(text, TEAS).verdict == "supported") == is_supported


@pytest.mark.parametrize(
    "text", ["泡绿茶用80度的水。", "红茶产量1998年增加到了350万吨。", "茶厂有1200名工人。"]
)
def test_supported_in_chinese(text):
    """Word order and particles change nothing."""
    assert check(text, TEA).verdict == "supported"


REPORT = (
    "As of May 29, 2022, we had approximately 32,500 employees around the globe, with 15,000 in the"
    " U.S. The American Automobile Association said that 20% of the stations had no fuel, and the"
    " forest shrank by 22,392 km2 (8,646 sq mi) a year. You must rebuild the index. Items: • The"
    " price of tea decreased by 4.6% • The price of cocoa increased by 10.3%"
)
LEASE = (
    "Notice must be given in writing, 60 days before. The desk costs €230 a month; a student pays 20%"
    " less. The office is open from 06:00 to 23:00. Parcels of 23 kg and 14 kg are sent. The cover is"
    " limited to 45 days a year. Profit declined to 612 million, from 655 million in 2021. The fund"
    " made 54% of its sales in Asia, and charging takes 3.5 hours."
)
CENSUS = (
    "根据2010年人口普查，该市共有24,672人，其中白人占84.12%。公司募集32.55亿元新台币。花瓶以摄氏800度烧制。"
    "允许凭证时，来源不能设定为通配符。20世纪初约有5000头马鹿，1970年前只余下150头，群族有2-18头。"
)


@pytest.mark.parametrize(
    "text",
    [
        "About 15,000 of the 32,500 employees worked in the United States.",
        "According to the AAA, one in five stations had no fuel.",
        "Roughly 22,400 km² of the forest shrank each year.",
        "According to the document, you must rebuild the index.",
        "For instance, the price of cocoa increased by 10.3%.",
        "该市有两万四千多人，其中超过八成是白人。",
        "据文档介绍，公司募集32.55亿新台币。",
        "20世纪初约有五千头马鹿，到1970年前只剩150头。",
    ],
)
def test_what_models_write_is_supported(text):
    """Rounded numbers, shares, long forms of names, words about the source."""
    statement = check(text, REPORT if text.startswith(("A", "R", "F")) else CENSUS)
    assert (statement.verdict, statement.findings) == ("supported", ())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("Notice is given 60 days before, in writing.", ("60", "90")),
        ("A student pays a fifth less.", ("fifth", "third")),
        ("The office is open from 6 a.m. to 11 p.m.", ("11 p.m.", "10 p.m.")),
        ("In total, the parcels weigh 37 kg.", ("37", "39")),
        ("The cover is limited to no more than 45 days a year.", ("45", "54")),
        ("Profit declined by 43 million.", ("43", "34")),
        ("More than half of the sales were made in Asia.", ("More", "Less")),
        ("Charging takes three and a half hours.", ("three", "five")),
    ],
)
def test_computed_numbers_and_other_forms_are_the_same(text, wrong):
    """Shares, times of the day, sums and differences, bounds; another number is flagged."""
    assert check(text, LEASE).verdict == "supported"
    assert check(text.replace(*wrong), LEASE).verdict in ("contradicted", "not_found")


@pytest.mark.parametrize(
    "text",
    [
        "According to the AAA, one in four stations had no fuel.",
        "Roughly 23,400 km² of the forest shrank each year.",
        "There is no need to rebuild the index.",
        "该市有三万四千多人。",
        "公司募集32.55亿港元。",
        "花瓶以800华氏度烧制。",
        "允许凭证时，来源可以设定为通配符。",
    ],
)
def test_what_models_write_is_contradicted(text):
    """Another share, currency or scale; what the source forbids or requires."""
    statement = check(text, REPORT if text.startswith(("A", "R", "T")) else CENSUS)
    assert statement.verdict in ("contradicted", "not_found")


@pytest.mark.parametrize("number", ["9" * 400, "2:30", "0", "0.000000001 nm"])
def test_any_number_is_compared(number):
    """Also one that no float holds, and a time that may be of either half of the day."""
    source = f"The count was {number} there, and 2:45 was the time."
    assert check(f"About {number} was the count.", source).verdict == "supported"
    assert check("About 2:20 was the time.", source).verdict == "contradicted"


def test_names_and_years_of_the_path_are_known():
    """A report rarely names its company on each page."""
    hit = Hit("n", "The workforce was 27% female.", 1.0, source="filings/PepsiCo_2021_10K.pdf")
    answer = "In 2021, 27% of the workforce of PepsiCo was female [1]."
    for source, verdict in ((hit, "supported"), (replace(hit, source=""), "not_found")):
        [statement] = CitationManager().resolve(answer, [source]).statements
        assert statement.verdict == verdict


@pytest.mark.parametrize(
    "text",
    ["The harbour opened on 6 May 1905.", "The harbour opened on May 6, 1905.", "It opened May 1905."],
)  # fmt: skip
@pytest.mark.parametrize(
    "source",
    ["On May 6, 1905, the harbour of 12 piers opened.", "On 6 May 1905 the harbour opened."],
)
def test_a_date_in_another_order_is_the_same(text, source):
    """Day, month and year, in the orders of both sides of the ocean."""
    assert check(text, source).verdict == "supported"
    wrong = check(text.replace("6", "7").replace("May 1905", "June 1905"), source)
    assert wrong.verdict == "contradicted"


@pytest.mark.parametrize(
    ("text", "kind", "words", "source_words"),
    [
        ("The bridge is 1,600 metres long.", "number", "1,600 metres", "1,800 metres"),
        ("The bridge is 1,800 feet long.", "number", "1,800 feet", "1,800 metres"),
        ("The bridge cost 2.5 billion crowns.", "number", "2.5 billion", "2.5 million"),
        ("The bridge was built from 1843 to 1852.", "number", "1852", "1850"),
        ("In May 1912 the northern tower was closed.", "date", "May", "March"),
        ("The council approved the toll.", "negation", "approved", "not approve"),
        ("The northern tower was not closed.", "negation", "not closed", "closed"),
        ("The northern tower was opened in March 1912.", "opposite", "opened", "closed"),
        ("The southern tower was closed in 1912.", "opposite", "southern", "northern"),
        ("Ada Holm sold the ferry to Karl Lund.", "order", "Ada Holm sold the ferry to Karl Lund",
         "Karl Lund sold the ferry to Ada Holm"),
        ("绿茶用90度的水泡两分钟。", "number", "90", "80"),
        ("红茶的产量在1998年减少到350万吨。", "opposite", "减少", "增加"),
        ("合作社批准了新的价格。", "negation", "批准", "没有批准"),
    ],
)  # fmt: skip
def test_contradicted(text, kind, words, source_words):
    """The finding has the words on both sides."""
    statement = check(text, BRIDGE if text.isascii() else TEA)
    assert statement.verdict == "contradicted"
    finding = next(finding for finding in statement.findings if finding.kind == kind)
    assert (finding.words, finding.source_words) == (words, source_words)


HOUSE = (
    "3. Carts\nCarts are charged between 22:00 and half past six, at most 15 kilometres an hour are"
    " allowed, and two members are present. The deposit is 400 yuan a week, paid back at 14:30."
    " The bar runs at 165 °C for pouches of foil and at 140 °C for bags with a paper face. The shop"
    " opened in 2012, and Ann kept the ledger. Leave was reduced by a third."
)
HOUSE_ZH = (
    "四、仓库\n开门必须两个人在场，每篓最多装2.5公斤，鲜叶在一个半小时内进站，下午两点半收秤。"
    "空瓶每季度末送回。主任罗文澜主持，楼内没有电梯，喷雾器不可打开。白班工资120元，夜班工资180元。"
)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Carts are charged from ten in the evening.", ("ten", "nine")),
        ("Carts are charged until 6:30.", ("6:30", "7:30")),
        ("At most 15 km/h are allowed.", ("15 km/h", "25 km/h")),
        ("Two members are present.", ("Two members are", "One member is")),
        ("The deposit is 400 yuan a week.", ("a week", "a month")),
        ("The deposit is paid back at half past two.", ("two", "three")),
        ("Bags with a paper face take 140 °C.", ("140", "165")),
        ("The shop opened in 2012.", ("in 2012", "in March 2012")),
        ("Ann did keep the ledger.", ("did keep", "did not keep")),
        ("Leave was reduced by a third.", ("reduced", "increased")),
        ("开门必须两个人在场。", ("两个人", "一个人")),
        ("每篓最多装5斤。", ("5斤", "2.5斤")),
        ("鲜叶在九十分钟内进站。", ("九十", "六十")),
        ("下午14时30分收秤。", ("14时30分", "15时30分")),
        ("空瓶每季度末送回。", ("每季度", "每个月")),
        ("主持的是主任罗文澜。", ("罗文澜", "罗文涛")),
        ("楼内没有电梯。", ("没有电梯", "有电梯")),
        ("喷雾器不可打开。", ("不可", "可以")),
        ("夜班比白班多60元。", ("60元", "90元")),
    ],
)
def test_times_rates_counts_and_names_of_house_rules(right, wrong):
    """Other forms of a number are the same; another period, count, part of a name, or a month that
    the source lacks is flagged.
    """
    source = HOUSE if right.isascii() or "°" in right else HOUSE_ZH
    assert check(right, source).verdict == "supported"
    assert check(right.replace(*wrong), source).verdict in ("contradicted", "not_found")


@pytest.mark.parametrize(
    "text",
    [
        "The bridge was painted green by volunteers.",
        "The bridge over the Arl is 1,800 metres long, and students sleep beneath its arches.",
        "Peter Vang designed it.",
        "公司的总部设在上海浦东新区。",
    ],
)
def test_not_found(text):
    """What no cited source says has findings."""
    statement = check(text, BRIDGE, TEA, indices=(1, 2))
    assert statement.verdict in ("not_found", "contradicted")
    assert statement.findings


@pytest.mark.parametrize(
    "text", ["I hope this helps!", "Let me know if you need more.", "希望这对您有帮助！", "Is that so?"]
)  # fmt: skip
def test_not_checkable(text):
    """Greetings, requests and questions state nothing."""
    assert check(text, BRIDGE, indices=()).verdict == "not_checkable"


def test_other_languages_are_compared_by_numbers_and_names():
    """They are never contradicted by their words."""
    assert check("Die Brücke ist 1600 Meter lang.", BRIDGE).verdict != "supported"
    assert check(
        "El puente fue construido por Ada Holm en 1850 con mucha piedra.", BRIDGE
    ).verdict == ("not_checkable")
    assert check("这座桥长1600米。", BRIDGE).verdict == "not_found"


def test_another_number_of_the_passage_is_detected():
    """The number is in the source, about something else."""
    statement = check("Karl Lund sold the ferry to Ada Holm for 1,800 crowns.", BRIDGE)
    assert statement.verdict == "contradicted"
    assert statement.findings[0].source_words == "40,000"


NOBEL = (
    "The prize of 2022 went to Annie Ernaux, a French author, on 6 October. The laureate of 2021 is"
    " Abdulrazak Gurnah. Chloe Kelly and Ella Toone scored for England, and Beth Mead was injured by"
    " a bacterium."
)
AWARD = (
    "2022年诺贝尔文学奖授予法国作家安妮·埃尔诺，奖金为1000万克朗。研究结果发表在《科学》杂志上。克罗地亚队2比1"
    "击败摩洛哥队，路德早期的作品最多。"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The prize of 2022 went to Haruki Murakami.", "Haruki"),
        ("Beth Mead was injured by a virus.", "virus"),
        ("Ella Mead was injured.", "Ella Mead"),
        ("Rev. Annie T. Gallagher is a French author.", "Gallagher"),
        ("2022年诺贝尔文学奖得主是村上春树。", "村上春树"),
        ("2022年诺贝尔文学奖授予了莫言。", "莫言"),
        ("研究结果发表在《自然》杂志上。", "自然"),
    ],
)
def test_an_absent_person_or_thing_is_detected(text, words):
    """A short answer with another name than the source, a noun in another's place, two mixed
    names.
    """
    statement = check(text, NOBEL if text.isascii() else AWARD)
    assert statement.verdict == "not_found"
    assert statement.findings[0].words == words


@pytest.mark.parametrize(
    "text",
    [
        "Annie Ernaux comes from France.",
        "The English team had Chloe Kelly and Ella Toone.",
        "摩洛哥队2比1输给克罗地亚队。",
        "诺贝尔文学奖的奖金约为1000万克朗。",
    ],
)
def test_other_forms_of_names_and_other_views_are_supported(text):
    """France for French; who loses to a team is beaten by it."""
    assert check(text, NOBEL if text.isascii() else AWARD).verdict == "supported"


@pytest.mark.parametrize(
    ("source", "swapped", "true"),
    [
        (
            "Sales rose to 5 million and costs fell to 3 million.",
            "Sales fell to 3 million and costs rose to 5 million.",
            "Costs fell to 3 million, while sales rose to 5 million.",
        ),
        (
            "Green tea goes to the cold room. Black tea is kept in the dry store.",
            "Black tea goes to the cold room, and green tea is kept in the dry store.",
            "Black tea is kept in the dry store, and green tea goes to the cold room.",
        ),
        (
            "In the contest Ann was first in rowing and Ben was last in fencing by a wide margin.",
            "In the contest Ann was first in fencing and Ben was last in rowing by a wide margin.",
            "In the contest Ben was last in fencing and Ann was first in rowing by a wide margin.",
        ),
        ("北区销量上升了，南区销量下降了。", "北区销量下降了，南区销量上升了。",
         "南区销量下降了，北区销量上升了。"),
        ("格式由红杉公司的Chen Wei和白桦公司的Li Na设计。", "格式由红杉公司的Li Na和白桦公司的Chen Wei设计。",
         "格式由白桦公司的Li Na和红杉公司的Chen Wei设计。"),
    ],
)  # fmt: skip
def test_clauses_that_have_exchanged_words_are_contradicted(source, swapped, true):
    """The finding covers both clauses, and those of the source; another order of them is true."""
    statement = check(swapped, source)
    assert [finding.kind for finding in statement.findings] == ["order"]
    assert statement.verdict == "contradicted"
    assert check(true, source).verdict == "supported"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "Ann works in Berlin as a cook, Ben works in Paris as a cook.",
            "Ben works in Paris as a cook and Ann works in Berlin as a cook.",
        ),
        ("北京是中国的首都，东京是日本的首都。", "东京是日本的首都，北京是中国的首都。"),
    ],
)
def test_names_of_two_clauses_have_no_order(source, text):
    """What stands between them is said of the first one alone."""
    assert check(text, source).verdict == "supported"


def test_clauses_with_words_of_their_own_are_no_swap():
    """A paraphrase of two sentences may share a word with either, in each of its clauses."""
    source = (
        "Changing variables requires a restart. You can get the same effect by extending templates,"
        " which allows you to update the messages without restarting."
    )
    text = (
        "Variables only take effect after a restart, whereas a message set by extending a template"
        " can be updated while the hub keeps running."
    )
    assert check(text, source).verdict == "supported"


@pytest.mark.parametrize(
    ("text", "source", "verdict"),
    [
        (
            "The council approved the black toll.",
            "The council did not approve the black toll.",
            "contradicted",
        ),
        (
            "The users of the old service are unsatisfied.",
            "The users of the old service are dissatisfied.",
            "supported",
        ),
        ("这种蘑菇没有毒。", "这种蘑菇有毒，不要采。", "contradicted"),
        ("新方法有风险。", "新方法没有风险，也不贵。", "contradicted"),
        ("李明在2020年写了《GPT》一书。", "李明写了《GPT》，该书2020年出版。", "supported"),
        ("The American team won the cup.", "The French team beat us and won the cup.", "not_found"),
    ],
)
def test_words_within_words_and_letters_of_either_case(text, source, verdict):
    """No denial is in "black"; two prefixes of one meaning; what there is; titles; the pronoun us."""
    assert check(text, source).verdict == verdict


def test_a_chinese_opposite_is_reported_once():
    """Not also by pairs of characters across two words."""
    statement = check("水位明显下降。", "水位明显上升。")
    assert [(finding.words, finding.source_words) for finding in statement.findings] == [
        ("下降", "上升")
    ]


@pytest.mark.parametrize(
    ("text", "source"),
    [
        # the next sentence denies it in other words
        (
            "生成的字典里没有默认值。",
            "生成的字典只含设置过的数据，而不包括默认值。它省略了默认值。",
        ),
        ("长河有东渠和田心水道。", "长河的支流是东渠及田心水道。"),
        ("测试的覆盖率保持在百分之百。", "测试的覆盖率保持在100%。"),
        ("删除前缀之后，名称会更简洁。", "在生成代码之前删除前缀，名称会更简洁。"),
    ],
)
def test_true_chinese_statements_are_supported(text, source):
    """Denials around the best sentence, conjunctions before a name, numerals without a digit, and
    postpositions of another word.
    """
    assert check(text, source).verdict == "supported"


@pytest.mark.parametrize(
    ("text", "source"),
    [
        (
            "Robert Kintner was appointed president by Noble in 1950.",
            (
                "In 1950, Noble appointed Robert Kintner president while he himself served as its CEO,"
                " a position he held until his death in 1958."
            ),
        ),
        (
            "The five-year agreement was increased by $400 million.",
            (
                "Holm ended the $3,800,000,000 five year agreement. There were no borrowings. It has"
                " three banks. Holm entered into a new $4,200,000,000 five year agreement."
            ),
        ),
        (
            "An independent school that receives no financial aid counts as private.",
            "Some independent schools receive financial aid. A private school is an unaided one.",
        ),
        (
            "Someone who hasn't been explicitly allowed sees a permission error.",
            (
                "Only explicitly allowed users can log in; a user who is not allowed sees a permission"
                " error."
            ),
        ),
        ("Martin played the part in the 70's.", "In the early 1970s, Martin played the part."),
        ("The Doctor rarely travels by himself.", "The Doctor rarely travels alone."),
        ("《夜间新闻》节目由胡天衡主持。", "胡天衡主持《夜间新闻》。"),
        ("2008年，希兰说储备仅够53天。", "2008年3月，希兰说，自2007年6月以来，储备仅够53天。"),
    ],
)
def test_other_words_and_numbers_of_true_statements(text, source):
    """Numbers in front of their clause, differences of a passage, denials of a modifier, decades,
    and words that an answer repeats from its question.
    """
    assert check(text, source).verdict == "supported"


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Covers millions of projects.", ("millions", "billions")),
        ("The bands peak at 687 and 760 nm.", ("nm", "µm")),
        ("演练在星期三下午举行。", ("星期三", "星期五")),
        ("最后三公里山路很窄。", ("三公里", "三里")),
        ("实验室用亚硒酸氧化乙醛。", ("亚硒酸", "高锰酸钾")),
        ("山上的鱼数量少。", ("少", "很多")),
    ],
)
def test_units_weekdays_and_rare_nouns(right, wrong):
    source = f"Tea is old. {right} Tea is old." if right.isascii() else f"茶很老。{right}"
    assert check(right, source).verdict == "supported"
    assert check(right.replace(*wrong), source).verdict in ("contradicted", "not_found")


@pytest.mark.parametrize(
    ("text", "words", "source_words"),
    [
        ("路德晚期的作品最多。", "晚期", "早期"),
        ("克罗地亚队2比1输给摩洛哥队。", "输给", "击败"),
    ],
)
def test_opposites_by_characters_and_before_the_same_word(text, words, source_words):
    """Two words that differ in opposite characters; lost to, and beat, the same team."""
    statement = check(text, AWARD)
    assert statement.verdict == "contradicted"
    finding = statement.findings[-1]
    assert (finding.kind, finding.words, finding.source_words) == ("opposite", words, source_words)


def test_a_day_is_no_age():
    """And a month is no number: 6 October and 12 December are compared with dates."""
    source = "Ada was born on 12 May and married on 6 October. Holm came on 25 December, aged 30."
    assert check("Holm was 30 when he came.", source).verdict == "supported"
    assert check("Holm came on 12 May, aged 30.", source).verdict == "contradicted"


def test_the_right_source_is_proposed():
    """A wrong citation names the source that has the statement."""
    statement = check("The bridge cost 2.5 million crowns.", TEA, BRIDGE)
    assert (statement.verdict, statement.index, statement.proposed) == ("not_found", 1, 2)


def test_a_statement_without_citation_is_compared_with_all_sources():
    """One that supports it is proposed."""
    statement = check("The bridge cost 2.5 million crowns.", TEA, BRIDGE, indices=())
    assert (statement.verdict, statement.index, statement.proposed) == ("supported", 2, 2)
    assert check("The bank has 17 branches.", TEA, indices=()).verdict == "not_found"


def test_the_second_opinion_is_asked_about_words_alone():
    """It cannot change what the rules contradict."""
    asked = []

    def judge(text, source):
        asked.append((text, source))
        return "supported"

    paraphrase = "A crossing spanning this river exists."
    assert check(paraphrase, BRIDGE).verdict == "not_found"
    assert check(paraphrase, BRIDGE, judge=judge).verdict == "supported"
    assert check("The bridge is 1,600 metres long.", BRIDGE, judge=judge).verdict == "contradicted"
    assert asked == [(paraphrase, BRIDGE)]


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Supported.", "supported"),
        ("<think>supported?</think> contradicted", "contradicted"),
        ("NOT FOUND", "not_found"),
        ("I cannot say.", "not_found"),
    ],
)
def test_a_chat_model_judges(reply, verdict):
    """An answer without a verdict supports nothing."""
    judge = chat_judge(lambda prompt: reply)
    assert check("A crossing spanning this river exists.", BRIDGE, judge=judge).verdict == verdict


def test_a_judge_that_fails_is_a_problem():
    """The statement stays as the rules have it."""

    def judge(text, source):
        raise GenerationError("no connection")

    text = "A crossing spanning this river exists [1]."
    resolved = CitationManager(judge).resolve(text, [Hit("n", BRIDGE, 1.0)])
    assert resolved.statements[0].verdict == "not_found"
    assert "no connection" in resolved.problems[0]


@pytest.mark.parametrize(
    ("judge", "problem"),
    [
        (lambda text, source: 1 / 0, "The judge raised ZeroDivisionError: division by zero."),
        (lambda text, source: "maybe", "must return supported, contradicted, not_found or"),
        (lambda text, source: None, "got None."),
    ],
)
def test_a_judge_without_a_verdict_is_a_problem_too(judge, problem):
    """Whatever it raises or returns, the other statements keep their verdicts."""
    text = "A crossing spanning this river exists [1]. The bridge is 1,600 metres long [1]."
    resolved = CitationManager(judge).resolve(text, [Hit("n", BRIDGE, 1.0)])
    assert [one.verdict for one in resolved.statements] == ["not_found", "contradicted"]
    assert problem in resolved.problems[0]


def test_a_finding_of_a_statement_is_written_once():
    """Though it is at several places."""
    statement = check("The bridge is 1,600 metres long, 1,600 metres in all.", BRIDGE)
    assert len(statement.findings) > 1
    assert str(statement).count("“1,600 metres” against “1,800 metres”") == 1


def test_a_judge_must_be_a_function():
    """A name is refused."""
    with pytest.raises(ConfigError, match="judge"):
        CitationManager("judge")


ANSWER = """# The bridge

The bridge is 1,600 metres long [1]. It cost 2.5 million crowns. [1]
I hope this helps!

- Ada Holm built it between 1843 and 1850 [1]
- 绿茶用80度的水泡两分钟 [2]

| part | closed |
|---|---|
| northern tower | March 1912 [1] |

```
length = 1700 [2]. And more. And more.
```
The council did not approve the toll [99]. It had 45 owners."""
VERDICTS = [
    ("The bridge is 1,600 metres long.", (1,), "contradicted"),
    ("It cost 2.5 million crowns.", (1,), "supported"),
    ("I hope this helps!", (), "not_checkable"),
    ("Ada Holm built it between 1843 and 1850", (1,), "supported"),
    ("绿茶用80度的水泡两分钟", (2,), "supported"),
    ("northern tower | March 1912", (1,), "supported"),
    ("The council did not approve the toll.", (), "supported"),
    ("It had 45 owners.", (), "not_found"),
]
SOURCES = [Hit("a", BRIDGE, 1.0), Hit("b", TEA, 1.0)]


def test_statements_of_an_answer():
    """Headings, code and the head of a table are left out; places are those of the answer."""
    statements = CitationManager().resolve(ANSWER, SOURCES).statements
    assert [(one.text, one.indices, one.verdict) for one in statements] == VERDICTS
    assert all(ANSWER[one.span[0]] == one.text[0] for one in statements)
    for finding in statements[0].findings:
        assert ANSWER[slice(*finding.span)] == finding.words


@given(st.lists(st.integers(1, 60), min_size=1, max_size=40))
def test_streamed_statements_are_those_of_the_complete_answer(lengths):
    """In the same order, wherever the pieces are cut; all but the last ones."""
    stream = CitationManager().stream(SOURCES)
    streamed = []
    at = 0
    for length in [*lengths, len(ANSWER)]:
        stream.feed(ANSWER[at : at + length])
        at += length
        streamed += stream.statements()
    complete = stream.finish().statements
    assert streamed == [*complete[: len(streamed)]]
    assert len(streamed) >= len(complete) - 2


PIECES = st.sampled_from(
    ["Tea", "1,800 metres", "not", "[1]", "[2][1]", "[99]", ". ", "。", "\n", "- ", "| a |", "```\n",
     "😀", "<script>alert(1)</script>", "合作社", "Ada Holm", "# ", "`x`", "1850", "ſ", "ﬁ", "\x00"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join), st.lists(PIECES, max_size=15).map("".join))
def test_any_answer_has_statements_at_their_places(answer, source):
    """Also one of fragments, markup and markers without a source."""
    hits = [Hit("a", source, 1.0), Hit("b", BRIDGE, 1.0)]
    statements = CitationManager().resolve(answer, hits).statements
    assert [one.span for one in statements] == sorted(one.span for one in statements)
    for one in statements:
        assert one.quote == (hits[one.index - 1].text[slice(*one.quote_span)] if one.index else "")
        assert (one.verdict == "contradicted") == any(f.source_words for f in one.findings)
        for finding in one.findings:
            assert answer[slice(*finding.span)] == finding.words or "[" in answer


@given(
    st.lists(PIECES.filter(lambda piece: "[" not in piece), min_size=1, max_size=15).map("".join)
)
def test_a_sentence_of_the_source_is_never_contradicted(sentence):
    """Copied text is supported, or too short to check."""
    hits = [Hit("n", sentence, 1.0)]
    statements = CitationManager().resolve(f"{sentence}[1]", hits).statements
    assert {one.verdict for one in statements} <= {"supported", "not_checkable"}
